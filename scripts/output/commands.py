"""commands — the form of each command's JSON, and the schema of all of them

Owns: COMMANDS, which docs/reference/json.md and docs/reference/json.schema.json are made from.
Guarantees: every command that takes --json is in the table (tests/unit/commands/test_output_shapes.py), and what
    commands print has these forms (tests/integration/commands/test_json.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic.json_schema import models_json_schema

from operate.shapes import accounts, checks, mail, recovery, settings
from shared.config.json_schema import WithoutTitles

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class Output:
    """What a command prints. lines: any number of objects, one a line; else one object. forms: each one's form."""

    forms: tuple[type[BaseModel], ...]
    lines: bool = False


def _one(*forms: type[BaseModel]) -> Output:
    return Output(forms)


def _lines(*forms: type[BaseModel]) -> Output:
    return Output(forms, lines=True)


_ACT: Final = _one(mail.Changed, mail.Preview)

COMMANDS: Final[dict[str, Output]] = {
    "migrate": _one(settings.Migrated),
    "database start": _one(settings.DatabaseStarted),
    "database stop": _one(settings.DatabaseStopped),
    "database status": _one(settings.DatabaseStatus),
    "init": _one(settings.Initialised),
    "relay": _one(settings.SmartHost),
    "user list": _lines(settings.User),
    **{f"user {verb}": _one(settings.UserName) for verb in ("add", "passwd", "disable", "enable", "remove")},
    "user hash": _one(settings.UserHash),
    "principal list": _lines(settings.Principal),
    **{
        f"principal {verb}": _one(settings.PrincipalChanged, settings.SettingsPreview)
        for verb in ("add", "change", "remove")
    },
    "accounts install": _one(settings.AccountsInstalled),
    "accounts remove": _one(settings.AccountsRemoved),
    "key add": _one(settings.ApiKeyMade, settings.SettingsPreview),
    "key list": _lines(settings.ApiKey),
    "key revoke": _one(settings.ApiKeyRevoked, settings.SettingsPreview),
    "web setup": _one(settings.SignInLink),
    "suppress list": _lines(settings.Suppression),
    "suppress add": _one(settings.Suppressed, settings.SettingsPreview),
    "suppress import": _one(settings.Suppressed, settings.SettingsPreview),
    "suppress remove": _one(settings.Target, settings.SettingsPreview),
    "queue list": _lines(mail.Recipient),
    "queue group": _lines(mail.Group),
    "queue show": _lines(mail.RecipientWithTries),
    "queue shape": _lines(mail.Destination),
    "queue top": _lines(mail.Top),
    "queue trace": _lines(mail.Event),
    "queue audit": _lines(mail.Command),
    **{f"queue {verb}": _ACT for verb in ("hold", "release", "retry", "delay", "priority", "move", "bounce", "delete")},
    "queue undo": _one(mail.Changed, mail.UndoPreview, settings.SettingsUndone, settings.SettingsPreview),
    "quarantine list": _lines(mail.Quarantine, mail.Held),
    "quarantine show": _one(mail.HeldMessage),
    "quarantine release": _ACT,
    "quarantine delete": _ACT,
    "quarantine rescan": _lines(mail.Rescanned, mail.RescanEnd),
    "quarantine export": _one(mail.Exported),
    "quarantine digest": _lines(mail.Digest),
    "sink show": _lines(mail.Taken, mail.TakenMessage),
    "recover begin": _one(recovery.Begun),
    "recover show": _one(recovery.Showing),
    "recover settle": _one(mail.Changed, recovery.SettlePreview),
    "recover release": _one(recovery.Released),
    "retention": _lines(mail.Retained, mail.RetainedAudit),
    "deadletters list": _lines(mail.DeadLetter),
    "deadletters show": _one(mail.DeadLetterWithTries),
    "deadletters requeue": _one(mail.Requeued, mail.RequeuePreview),
    "deadletters watch": _lines(mail.DeadLetter),
    "status": _one(checks.Status),
    "doctor": _one(checks.Diagnosis),
    "schedule list": _lines(settings.Schedule),
    "schedule add": _one(
        settings.ScheduleChanged, settings.SettingsPreview, settings.ScheduledOnce, settings.ScheduledOncePreview
    ),
    **{
        f"schedule {verb}": _one(settings.ScheduleChanged, settings.SettingsPreview)
        for verb in ("remove", "enable", "disable")
    },
    "webhooks list": _lines(settings.Webhook),
    "webhooks add": _one(settings.WebhookSecret, settings.SettingsPreview),
    "webhooks rotate": _one(settings.WebhookSecret, settings.SettingsPreview),
    "webhooks test": _one(settings.WebhookTested),
    "webhooks replay": _one(settings.WebhookReplayed),
    **{
        f"webhooks {verb}": _one(settings.WebhookName, settings.SettingsPreview)
        for verb in ("enable", "disable", "remove")
    },
    "suspend list": _lines(settings.Suspend),
    "suspend add": _one(settings.Suspended, settings.SettingsPreview),
    "suspend remove": _one(settings.Removed, settings.SettingsPreview),
    "accounts preview": _one(accounts.AccountMailPreview),
    "accounts verify": _one(accounts.SecretVerified),
    "partitions show": _one(checks.Leaves),
    "partitions plan": _one(checks.RepartitionPlan),
    **{f"partitions {verb}": _one(checks.Repartitioned) for verb in ("apply", "split", "merge", "move")},
    "partitions balance": _one(checks.Balance),
    "volumes list": _lines(settings.Volume),
    "volumes report": _one(settings.VolumesReported),
    "volumes forget": _one(settings.VolumesForgotten),
    "policy check": _one(checks.PolicyRead),
    "policy test": _one(checks.PolicyTrial),
    "config show": _one(settings.Configuration),
    "dkim generate": _one(settings.SigningKey),
    "dkim check": _lines(settings.SigningKeyChecked),
    "rules test": _one(checks.RuleTrial),
    "erase": _one(mail.Erased, mail.ErasePreview),
    "analytics generate": _one(checks.Generated),
    "analytics export": _one(checks.Exports),
    "analytics cleanup": _one(checks.Cleanup),
    "analytics search": _lines(mail.Finished),
    "analytics report": _one(checks.Report),
    "analytics stream": _lines(checks.Minute),
}


def schema_text() -> str:
    """The JSON Schema (draft 2020-12) of every command: `$defs` has each form, and `properties` each command."""
    forms = list(dict.fromkeys(form for output in COMMANDS.values() for form in output.forms))
    refs, found = models_json_schema(
        [(form, "validation") for form in forms], by_alias=True, schema_generator=WithoutTitles
    )
    for form in found["$defs"].values():
        # The tests allow no other field; a program must, because a later version may have more.
        if form.get("additionalProperties") is False:
            del form["additionalProperties"]
    lines: dict[str, Any] = {}
    for command, output in COMMANDS.items():
        each = [refs[form, "validation"] for form in output.forms]
        lines[command] = each[0] if len(each) == 1 else {"anyOf": each}
    whole = {
        "$schema": WithoutTitles.schema_dialect,
        "description": "The JSON of each command of pillarbox: a property is a command, its value the form of a line.",
        "type": "object",
        "properties": lines,
        "additionalProperties": False,
        "$defs": found["$defs"],
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"
