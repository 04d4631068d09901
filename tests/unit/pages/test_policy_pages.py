"""test_policy_pages — the policy reference's examples work as documented, and no key is missing

Owns: runs every example of scripts/dev/policy_examples.py by the command it shows.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path

import pytest

from scripts.cli import main
from scripts.dev.policy_examples import CAMPAIGN, EXAMPLES
from scripts.dev.policy_reference import page
from shared.config.smtpd.load import load_smtpd
from shared.config.smtpd.policy import Policy
from shared.config.smtpd.policy_action import Action
from shared.config.smtpd.policy_condition import Condition

DOCS = Path(__file__).parents[3] / "docs"
USERS = (
    "authentication: {users: {alice: $argon2id$x, carol: $argon2id$x, acme: $argon2id$x, newsletter: $argon2id$x}}\n"
)
RELAY = "relay: {networks: [192.0.2.0/24]}\n"


@pytest.mark.parametrize("action", EXAMPLES)
def test_each_example_does_what_it_says(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    example = EXAMPLES[action]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("config").mkdir()
    Path("campaign.eml").write_bytes(CAMPAIGN)
    policy = "policy:\n" + textwrap.indent(example.policy, "  ")
    Path("config/smtpd.yaml").write_text(f"environment: {{var: {tmp_path}/var}}\n{RELAY}{USERS}{policy}")
    status = main(["policy", "test", *shlex.split(example.envelope)])
    lines = capsys.readouterr().out.splitlines()
    said = [line for line in lines if not line.startswith("note: ")]
    assert tuple(said[-len(example.says) :]) == example.says
    assert status == (1 if any("refused: " in line for line in example.says) else 0)


def test_every_action_has_its_example_and_uses_it() -> None:
    assert set(EXAMPLES) | {"holdreason"} == set(Action.model_fields)
    assert all(f"{action}: " in example.policy for action, example in EXAMPLES.items())


def test_every_condition_and_action_is_on_the_page() -> None:
    text = page()
    for model in (Condition, Action):
        for name, field in model.model_fields.items():
            assert f"| `{field.alias or name}` |" in text


@pytest.mark.parametrize(
    "file", ["reference/policy.md", "how-to/accept/check-content-with-rspamd.md", "how-to/accept/hold-mail.md"]
)
def test_every_policy_on_a_page_is_valid(file: str, tmp_path: Path) -> None:
    text = page() if file == "reference/policy.md" else (DOCS / file).read_text(encoding="utf-8")
    blocks = re.findall(r"(?:^    .*\n|^\n)+", text, re.MULTILINE)
    policies = [
        block
        for block in map(textwrap.dedent, blocks)
        if re.search(r"^\s*(rules|holds|contentcheck):", block, re.MULTILINE)
    ]
    assert len(policies) >= (len(EXAMPLES) + 3 if file == "reference/policy.md" else 2)
    for policy in policies:
        written = policy.partition("$ pillarbox")[0].strip("\n")
        if not written.startswith("policy:"):
            written = "policy:\n" + textwrap.indent(written, "  ")
        (tmp_path / "smtpd.yaml").write_text(written)
        assert load_smtpd(tmp_path / "smtpd.yaml", {}).policy != Policy()


@pytest.mark.parametrize(("at", "status"), [("2026-07-01T19:59+02:00", 1), ("2026-07-01T18:00", 0), ("noon", 2)])
def test_the_command_takes_a_time(at: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = EXAMPLES["defer"]
    monkeypatch.chdir(tmp_path)
    Path("config").mkdir()
    policy = "policy:\n" + textwrap.indent(example.policy, "  ")
    Path("config/smtpd.yaml").write_text(f"environment: {{var: {tmp_path}/var}}\n{RELAY}{policy}")
    envelope = shlex.split(example.envelope)
    envelope[envelope.index("--at") + 1] = at
    if status == 2:
        with pytest.raises(SystemExit, match="2"):
            main(["policy", "test", *envelope])
    else:
        assert main(["policy", "test", *envelope]) == status
