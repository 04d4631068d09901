"""test_schema_files — the schemas and the shipped YAML in config/ agree with the models

Owns: the agreement of config/*.schema.json and config/*.yaml with the models, in values and in words.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
from pydantic import BaseModel

from scripts.dev import schema
from shared.config.collect.load import load_collect
from shared.config.collect.settings import CollectConfig
from shared.config.httpd.load import load_httpd
from shared.config.httpd.settings import HttpdConfig
from shared.config.json_schema import SCHEMAS, schema_text
from shared.config.queued.load import load_queued
from shared.config.queued.settings import QueuedConfig
from shared.config.smtpd.load import load_smtpd
from shared.config.smtpd.policy_check import ContentCheck
from shared.config.smtpd.settings import SmtpdConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydantic.fields import FieldInfo

CONFIG = Path(__file__).parents[3] / "config"
MODELS: dict[str, type[BaseModel]] = {
    "smtpd.yaml": SmtpdConfig,
    "queued.yaml": QueuedConfig,
    "httpd.yaml": HttpdConfig,
    "collect.yaml": CollectConfig,
}
LOADERS: dict[str, Callable[..., Any]] = {
    "smtpd.yaml": load_smtpd,
    "queued.yaml": load_queued,
    "httpd.yaml": load_httpd,
    "collect.yaml": load_collect,
}
EACH = pytest.mark.parametrize(("file", "model"), list(MODELS.items()))


def fields(model: type[BaseModel], above: tuple[type[BaseModel], ...] = ()) -> Iterator[tuple[str, FieldInfo]]:
    """Every key of a model, of its sections too; a section inside itself (conditions in conditions) once."""
    for name, field in model.model_fields.items():
        yield field.alias or name, field
        for section in sections(field.annotation):
            if section not in (*above, model):
                yield from fields(section, (*above, model))


def sections(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from sections(part)


def uncommented(text: str) -> str:
    """The words of a YAML file without comment marks and line ends."""
    return " ".join(re.sub(r"^[\s#]*", "", line) for line in text.splitlines())


def test_the_schema_files_are_current() -> None:
    assert schema.main(["--check", "--config", str(CONFIG)]) == 0


def test_check_names_an_outdated_schema_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert schema.main(["--config", str(tmp_path)]) == 0
    stale = tmp_path / "queued.schema.json"
    stale.write_text("{}")
    capsys.readouterr()
    assert schema.main(["--check", "--config", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"{stale} is out of date; run python -m scripts.dev.schema\n"
    assert stale.read_text() == "{}"
    assert schema.main(["--config", str(tmp_path)]) == 0
    assert schema.main(["--check", "--config", str(tmp_path)]) == 0


def test_a_missing_folder_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert schema.main(["--config", str(tmp_path / "nowhere")]) == 1
    assert "nowhere is not a folder" in capsys.readouterr().err


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_refuse_unknown_keys_and_have_defaults_in_our_notation(name: str) -> None:
    written = json.loads(schema_text(SCHEMAS[name]))
    assert written["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    sections = [part for part in [written, *written["$defs"].values()] if part.get("type") == "object"]
    assert len(sections) > 5
    assert all(part["additionalProperties"] is False for part in sections)
    database, section = {
        "smtpd.schema.json": ("SmtpdDatabase", "Spool"),
        "queued.schema.json": ("QueuedDatabase", "Shutdown"),
        "httpd.schema.json": ("HttpdDatabase", "HttpdShutdown"),
        "collect.schema.json": ("Database", "Shutdown"),
    }[name]
    assert written["$defs"][database]["properties"]["uri"]["default"] == "embedded:"
    assert written["$defs"][section]["properties"]["timeout"]["default"] == "30s"


@pytest.mark.parametrize("name", SCHEMAS)
def test_default_values_in_schemas_match_the_patterns_beside_them(name: str) -> None:
    checked = 0
    for part in json.loads(schema_text(SCHEMAS[name]))["$defs"].values():
        for key, value in part.get("properties", {}).items():
            patterns = [choice["pattern"] for choice in value.get("anyOf", [value]) if "pattern" in choice]
            if patterns and isinstance(value.get("default"), str):
                checked += 1
                assert any(re.search(pattern, value["default"]) for pattern in patterns), key
    assert checked > 3


def test_every_key_is_described_with_unit_and_default() -> None:
    for model in MODELS.values():
        for key, field in fields(model):
            assert field.description, key
            is_section = field.default_factory is not None and isinstance(field.default_factory, type)
            if not is_section or field.default_factory is list:
                assert re.search(r"(, default .+|, required)\.$", field.description), key


def test_the_shipped_files_are_the_defaults() -> None:
    assert load_smtpd(CONFIG / "smtpd.yaml", {}) == SmtpdConfig()
    assert load_queued(CONFIG / "queued.yaml", {}) == QueuedConfig()
    assert load_httpd(CONFIG / "httpd.yaml", {}) == HttpdConfig()
    assert load_collect(CONFIG / "collect.yaml", {}) == CollectConfig()


def test_the_shipped_files_take_the_database_from_the_environment() -> None:
    environ = {"PILLARBOX_DATABASE_URI": "postgresql://db/queue"}
    for file, load in LOADERS.items():
        assert load(CONFIG / file, environ).environment.database.uri == "postgresql://db/queue"


@EACH
def test_the_shipped_files_have_every_key_with_its_description(file: str, model: type[BaseModel]) -> None:
    text = (CONFIG / file).read_text(encoding="utf-8")
    words = uncommented(text)
    for key, field in fields(model):
        assert re.search(rf"^[ #-]*{key}:", text, re.MULTILINE), key
        assert (field.description or "?") in words, key


@EACH
def test_only_absent_defaults_are_commented_out(file: str, model: type[BaseModel]) -> None:
    left_out = {field for part in parts(LOADERS[file](CONFIG / file, {})) for field in absent(part)}
    assert left_out <= {
        *(
            "arc",
            "attempt",
            "auth",
            "contentcheck",
            "dead",
            "default",
            "endpoint",
            "exempt",
            "file",
            "group",
            "hostname",
            "listen",
            "maxlinelength",
            "discardkeywords",
            "messages",
            "notice",
            "secret",
            "server",
            "sessions",
            "socket",
            "tls",
        ),
        *("oidc", "trusted", "uri", "user"),
        *("ca", "certificate", "names", "privatekey"),
        *("address", "domain", "keepfeedback", "overall", "postmaster"),
        *("failed", "delayed", "delivered", "relayed"),
        *("activate", "name", "recover", "sender", "templates"),
    }


def parts(value: object) -> Iterator[BaseModel]:
    if isinstance(value, BaseModel):
        yield value
        for name in type(value).model_fields:
            yield from parts(getattr(value, name))
    elif isinstance(value, list):
        for entry in value:
            yield from parts(entry)


def absent(part: BaseModel) -> set[str]:
    return set(type(part).model_fields) - part.model_fields_set


def test_the_examples_in_comments_are_valid(tmp_path: Path) -> None:
    text = (CONFIG / "smtpd.yaml").read_text(encoding="utf-8")
    examples = r"^  (lists|holds|rules): \[\]\n((?:  #   .*\n)+)"
    text = re.sub(examples, lambda m: f"  {m[1]}:\n{bare(m[2], 2)}", text, flags=re.MULTILINE)
    text = re.sub(r"^  # contentcheck:\n(?:  #   .*\n)+", lambda m: bare(m[0], 2), text, flags=re.MULTILINE)
    text = re.sub(
        r"^  users: \{\}\n((?:  #   .*\n)+)", lambda m: "  users:\n" + bare(m[1], 2), text, flags=re.MULTILINE
    )
    text = re.sub(r"^    # tls:\n(?:    #  .*\n)+", lambda m: bare(m[0], 4), text, flags=re.MULTILINE)
    text = re.sub(
        r"^quarantines: \[\]\n((?:# .*\n)+)", lambda m: f"quarantines:\n{bare(m[1], 0)}", text, flags=re.MULTILINE
    )
    text = text.replace("    # hostname:", "    hostname:")
    file = tmp_path / "smtpd.yaml"
    file.write_text(text, encoding="utf-8")
    config = load_smtpd(file, {})
    (server,) = config.servers
    assert server.tls is not None
    assert server.tls.privatekey == Path("/etc/pillarbox/privatekey.pem")
    assert server.hostname == "mail.example.com"
    assert set(config.authentication.users) == {"alice"}
    rules = config.policy.rules
    assert rules[0].condition.model_fields_set == set(type(rules[0].condition).model_fields)
    assert {key for rule in rules for key in rule.action.model_fields_set} == set(type(rules[0].action).model_fields)
    assert config.policy.contentcheck == ContentCheck()
    (quarantine,) = config.quarantines
    assert quarantine.model_fields_set == set(type(quarantine).model_fields)
    assert [source.id for source in config.policy.lists] == ["customers", "suspended"]
    assert [hold.hold for hold in config.policy.holds] == ["review"]


def bare(text: str, indent: int) -> str:
    """A block of YAML without its first column of comment marks."""
    return re.sub(rf"^ {{{indent}}}# ", " " * indent, text, flags=re.MULTILINE)


@EACH
def test_the_heading_points_editors_to_the_schema(file: str, model: type[BaseModel]) -> None:
    first = (CONFIG / file).read_text(encoding="utf-8").splitlines()[0]
    name = first.removeprefix("# yaml-language-server: $schema=./")
    assert SCHEMAS[name] is model
    assert (CONFIG / name).is_file()
