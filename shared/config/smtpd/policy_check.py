"""policy_check — the content check by rspamd, and the consequences of its verdicts

Owns: the section `policy.contentcheck` of smtpd.yaml.
See: https://docs.rspamd.com/developers/protocol; rspamd's task_timeout (8s) and max_message (50MiB)
"""

from typing import Annotated, Literal

from shared.config.fields import Checked, Interval, Section, Size, section, setting, whole
from shared.config.smtpd.policy_fields import QuarantineId
from shared.masking import show
from shared.url import parts_of

Consequence = Literal["accept", "tag", "hold", "defer", "reject"]
_WORDS = "accept, tag (add the check's header fields), hold, defer or reject"


def _url(value: object) -> str:
    if isinstance(value, str) and value.isascii() and value.isprintable() and " " not in value:
        parts = parts_of(value)
        if parts and parts.scheme == "http" and not (parts.username or parts.query or parts.fragment):
            return value
    raise ValueError(f"{show(value)} is not a valid rspamd address; allowed: http://HOST:PORT of its normal worker")


class CheckActions(Section):
    """What to do for each of rspamd's actions."""

    reject: Consequence = setting("reject", f"For rspamd's action reject: {_WORDS}.", unit="word")
    softreject: Consequence = setting("defer", f"For rspamd's action soft reject: {_WORDS}.", unit="word")
    greylist: Consequence = setting("defer", f"For rspamd's action greylist: {_WORDS}.", unit="word")
    rewritesubject: Consequence = setting(
        "tag", f"For rspamd's action rewrite subject: {_WORDS}; content is not changed.", unit="word"
    )
    addheader: Consequence = setting("tag", f"For rspamd's action add header: {_WORDS}.", unit="word")

    @property
    def by_name(self) -> dict[str, Consequence]:
        """The same by rspamd's own words; `no action` means nothing more than accept."""
        return {
            "reject": self.reject,
            "soft reject": self.softreject,
            "greylist": self.greylist,
            "rewrite subject": self.rewritesubject,
            "add header": self.addheader,
        }


class ContentCheck(Section):
    """A check of every message by rspamd, before it is accepted."""

    url: Annotated[str, Checked(_url, {"type": "string", "pattern": "^http://"})] = setting(
        "http://127.0.0.1:11333", "Where rspamd's normal worker listens.", unit="URL"
    )
    timeout: Interval = setting(
        "10s", "How long a check may take; rspamd itself stops after 8s (task_timeout).", unit="duration"
    )
    whendown: Literal["accept", "hold", "defer"] = setting(
        "defer", "What happens to mail while rspamd does not answer: accept, hold or defer.", unit="word"
    )
    maxsize: Size = setting(
        "50MiB", "Larger messages are accepted unchecked (rspamd's max_message).", unit="size in bytes"
    )
    concurrency: Annotated[int, whole(1, 10_000)] = setting(
        20, "The most simultaneous checks of one process; others wait, within their timeout.", unit="checks"
    )
    hold: QuarantineId = setting(
        "contentcheck", "The quarantine for held mail (metadata _quarantineid).", unit="quarantine id"
    )
    actions: CheckActions = section(CheckActions, "What to do for each of rspamd's actions.")
