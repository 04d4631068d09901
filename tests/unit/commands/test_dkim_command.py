"""test_dkim_command — `pillarbox dkim` writes keys that only their owner can read, and reports missing DNS records"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from queued.signing.records import difference
from scripts import cli
from tests.fixtures.daemons.signing import key, key_files
from tests.fixtures.peers.fake_dns import SERVFAIL, FakeDns

if TYPE_CHECKING:
    from pathlib import Path

RECORD: Final = key("ed").record()


def generate(folder: Path, *more: str, domain: str = "Example.com", selector: str = "s1") -> int:
    return cli.main(["dkim", "generate", "--domain", domain, "--selector", selector, "--out", str(folder), *more])


@pytest.mark.parametrize(("more", "kind"), [([], "rsa"), (["--ed25519"], "ed25519")])
def test_a_key_is_written_for_its_owner_and_its_record_printed(
    more: list[str], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate(tmp_path, *more) == 0
    [file] = tmp_path.iterdir()
    assert file.name == "example.com.s1.pem"
    assert file.stat().st_mode & 0o777 == 0o600
    printed = capsys.readouterr().out
    assert f'\ns1._domainkey.example.com. IN TXT ( "v=DKIM1; k={kind}; p=' in printed
    assert "PRIVATE" not in printed


def test_an_existing_key_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generate(tmp_path)
    before = (tmp_path / "example.com.s1.pem").read_bytes()
    assert generate(tmp_path) == 1
    assert "is there already" in capsys.readouterr().err
    assert (tmp_path / "example.com.s1.pem").read_bytes() == before


def test_a_missing_folder_is_created(tmp_path: Path) -> None:
    assert generate(tmp_path / "new" / "dkim") == 0
    assert (tmp_path / "new" / "dkim" / "example.com.s1.pem").exists()


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate(tmp_path, domain="../x") == 1
    assert generate(tmp_path, selector="a b") == 1
    (tmp_path / "file").touch()
    assert generate(tmp_path / "file") == 1
    domain, selector, folder = capsys.readouterr().err.splitlines()
    assert '--domain: "../x" is not usable here' in domain
    assert '--selector: "a b" is not usable here' in selector
    assert "cannot be written: Not a directory" in folder


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (RECORD, None),
        (RECORD.replace("; ", ";") + ";", None),
        (RECORD.replace("p=", "t=s; p= "), None),
        (None, "DNS has no such record"),
        ("v=DKIM1; p=", "the key in DNS is revoked (p= is empty)"),
        ("v=DKIM1; p=AAAA", "DNS has another key"),
        (RECORD.replace("k=ed25519; ", ""), "DNS has another key"),
        ("v=spf1 -all", "DNS has another key"),
    ],
    ids=["same", "spaced", "more tags", "none", "revoked", "another", "of another kind", "no key"],
)
def test_a_record_is_compared_by_its_tags(found: str | None, said: str | None) -> None:
    assert difference(RECORD, found) == said


async def test_check_asks_the_configured_name_server_and_fails_if_a_record_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    selectors = ["ed", "rsa"]
    records: dict[tuple[str, str], list[str]] = {
        (f"{selector}._domainkey.a.example", "TXT"): [_quoted(key(selector).record())] for selector in selectors
    }
    records["ed._domainkey.c.example", "TXT"] = [SERVFAIL]
    records["ed._domainkey.d.example", "TXT"] = ['"k=ed25519; p=' + "A" * 200 + '" "' + "A" * 240 + '"']
    files = {entry["selector"]: entry["file"] for entry in key_files(tmp_path, *selectors)}

    async def checked(domains: str, *used: str) -> tuple[int, list[str]]:
        keys = ", ".join(f"{{selector: {each}, file: '{files[each]}'}}" for each in used)
        config = f"routing: {{dns: {{servers: ['{dns.where}'], timeout: 1s}}}}\n"
        config += f"signing: {{rules: [{{id: x, senderdomain: [{domains}], keys: [{keys}]}}]}}\n"
        (tmp_path / "queued.yaml").write_text(config)
        status = await asyncio.to_thread(cli.main, ["dkim", "check", "--config", str(tmp_path)])
        return status, capsys.readouterr().out.splitlines()

    async with FakeDns(records) as dns:
        status, lines = await checked("'*.z.example', a.example", *selectors)
        assert (status, lines) == (0, ["ed._domainkey.a.example: ok", "rsa._domainkey.a.example: ok"])
        status, lines = await checked("a.example, b.example, c.example, d.example", "ed")
        assert status == 1
        assert lines[1] == "ed._domainkey.b.example: DNS has no such record"
        assert lines[2].startswith("ed._domainkey.c.example: DNS does not answer: ")
        assert lines[3] == "ed._domainkey.d.example: DNS has another key"


def _quoted(record: str) -> str:
    """In the strings of a zone file, 255 octets at most each."""
    return " ".join(f'"{record[at : at + 255]}"' for at in range(0, len(record), 255))


def test_check_without_rules_reports_that_mail_is_unsigned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "queued.yaml").write_text("{}")
    assert cli.main(["dkim", "check", "--config", str(tmp_path)]) == 0
    assert "leaves unsigned" in capsys.readouterr().out
