"""Settings of the server come from options, the environment and a file, and say where they came from."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
import trustme
from tests.cli.shell import Shell

from hansard.cli.configuration import Options, resolve
from hansard.errors import ValidationError

DOCUMENTED = Path(__file__).parents[2].joinpath("docs/reference/server.md").read_text("utf-8")
TEXTS: dict[str, tuple[str, str]] = {
    "port": ("1234", "1234"),
    "require_key": ("yes", "true"),
    "max_relays": ("7", "7"),
    "workers": ("3", "3"),
    "log_level": ("debug", '"debug"'),
    "drain": ("2.5", "2.5"),
    "backup_to": ("s3://bucket/prefix", '"s3://bucket/prefix"'),
    "backup_every": ("12h", '"12h"'),
    "backup_keep": ("3", "3"),
    "purge_every": ("1h", '"1h"'),
    "tls_cert": ("cert.pem", '"cert.pem"'),
    "tls_key": ("key.pem", '"key.pem"'),
    "trusted_proxy": ("10.0.0.0/8", '["10.0.0.0/8"]'),
    "otlp": ("http://collector:4318", '"http://collector:4318"'),
    "oidc": ("https://id.example", '"https://id.example"'),
    "oidc_redirect": ("https://h.example/sign-in/callback", '"https://h.example/sign-in/callback"'),
    "oidc_scopes": ("read,write", '"read,write"'),
    "upstream": ("https://model.example/v1", '"https://model.example/v1"'),
    "cors_origin": ("https://a.example, https://b.example", '["https://a.example", "https://b.example"]'),
}
"""A setting → its text in the environment, and in TOML. Other settings take any text."""
SETTINGS = [field.name for field in fields(Options) if field.name != "config"]
COMPANIONS = {
    "model": ("upstream",),
    "jwt_issuer": ("jwks",),
    "jwt_audience": ("jwks",),
    "oidc": ("oidc_client_id",),
    "oidc_client_id": ("oidc",),
    **dict.fromkeys(
        ("oidc_client_secret", "oidc_redirect", "oidc_tenant", "oidc_user_claim", "oidc_scopes"),
        ("oidc", "oidc_client_id"),
    ),
    "tls_cert": ("tls_key",),
    "tls_key": ("tls_cert",),
    "backup_every": ("backup_to",),
    "backup_keep": ("backup_to",),
}
"""Settings that need other ones."""


def shown(shell: Shell, *arguments: str) -> dict[str, tuple[object, str]]:
    return {
        item["name"]: (item["value"], item["origin"]) for item in shell("config", *arguments, "--json").json["items"]
    }


def write_certificate(folder: Path, key: str = "key.pem", certificate: str = "cert.pem") -> trustme.CA:
    """Writes a certificate for localhost and its key, and returns its authority."""
    authority = trustme.CA()
    made = authority.issue_cert("localhost", "127.0.0.1")
    made.private_key_pem.write_to_path(str(folder / key))
    made.cert_chain_pems[0].write_to_path(str(folder / certificate))
    return authority


def texts(name: str) -> tuple[str, str]:
    return TEXTS.get(name, ("some", '"some"'))


@pytest.mark.parametrize("name", SETTINGS)
def test_every_option_can_be_set_in_the_environment_and_in_a_file(name: str, shell: Shell) -> None:
    variable, key = f"HANSARD_{name.upper()}", name.replace("_", "-")
    lines = [f"{key} = {texts(name)[1]}"]
    lines += [f"{other.replace('_', '-')} = {texts(other)[1]}" for other in COMPANIONS.get(name, ())]
    write_certificate(shell.folder)
    (shell.folder / "hansard.toml").write_text("\n".join(lines), encoding="utf-8")
    from_file, origin = shown(shell)[name]
    assert origin == "hansard.toml"
    shell.environment[variable] = texts(name)[0]
    from_environment, origin = shown(shell)[name]
    assert origin == f"environment variable {variable}"
    assert from_environment == from_file


def test_the_command_line_comes_first_and_an_empty_variable_does_not_count(shell: Shell) -> None:
    (shell.folder / "mine.toml").write_text('port = 1\nhost = "::1"\nurl = "memory://"', encoding="utf-8")
    shell.environment |= {"HANSARD_PORT": "2", "HANSARD_HOST": "", "HANSARD_CONFIG": "mine.toml"}
    found = shown(shell, "--port", "3")
    assert found["port"] == (3, "command line")
    assert found["host"] == ("::1", "mine.toml")
    assert found["url"] == ("memory://", "mine.toml")
    assert found["workers"] == (1, "default")


def test_other_commands_use_the_store_of_the_file(shell: Shell) -> None:
    (shell.folder / "hansard.toml").write_text('url = "sqlite:///mine.db"\nkeys = "mine.json"', encoding="utf-8")
    shell("append", "c", "user", "hello")
    assert (shell.folder / "mine.db").exists()
    shell("keys", "create", "k")
    assert (shell.folder / "mine.json").exists()


def test_secrets_are_not_shown(shell: Shell) -> None:
    shell.environment["HANSARD_URL"] = "postgresql://me:very-secret@db/x"
    shell.environment |= {"HANSARD_OIDC": "https://id.example", "HANSARD_OIDC_CLIENT_ID": "page"}
    shell.environment["HANSARD_OIDC_CLIENT_SECRET"] = "very-secret"
    assert "very-secret" not in shell("config").out + shell("config", "--json").out
    assert shown(shell)["oidc_client_secret"] == ("…", "environment variable HANSARD_OIDC_CLIENT_SECRET")


WRONG = {
    "a wrong type in the environment": (
        {"HANSARD_PORT": "http"},
        "",
        "--port is 'http' (environment variable HANSARD_PORT): Expected `int`, got `str`",
    ),
    "a wrong type in the file": ({}, 'workers = "four"', "--workers is 'four' (hansard.toml): Expected `int`"),
    "a wrong choice": (
        {},
        'log-level = "loud"',
        "--log-level is 'loud' (hansard.toml): it must be one of debug, info, warning, error",
    ),
    "a wrong path": ({}, "audit-log = 5", "--audit-log is 5 (hansard.toml): Expected"),
    "out of range": ({"HANSARD_WORKERS": "0"}, "", "--workers is 0 (environment variable HANSARD_WORKERS): it must be"),
    "an unknown key": ({}, "prot = 1", "unknown setting 'prot' in hansard.toml: did you mean 'port'?"),
    "a contradiction": ({}, 'model = "m"', "--model is 'm' (hansard.toml): it needs --upstream, which is not set"),
    "an issuer without a client": (
        {"HANSARD_OIDC": "https://id.example"},
        "",
        "--oidc is 'https://id.example' (environment variable HANSARD_OIDC): it needs --oidc-client-id, which is not",
    ),
    "a certificate without its key": (
        {},
        'tls-cert = "c.pem"',
        "--tls-cert is 'c.pem' (hansard.toml): it needs --tls-key",
    ),
    "no certificate": (
        {},
        'tls-cert = "c.pem"\ntls-key = "k.pem"',
        "--tls-cert is 'c.pem' (hansard.toml): there is no such",
    ),
    "a proxy's name": ({"HANSARD_TRUSTED_PROXY": "nginx"}, "", "'nginx' is neither an address nor a network"),
    "no address": ({}, 'otlp = "collector:4318"', "--otlp is 'collector:4318' (hansard.toml): it must begin with http"),
    "no folder": (
        {"HANSARD_BACKUP_TO": "gone"},
        "",
        "(environment variable HANSARD_BACKUP_TO): there is no such folder",
    ),
    "no interval": (
        {},
        'backup-to = "."\nbackup-every = "often"',
        "--backup-every is 'often' (hansard.toml): write an",
    ),
    "no target": ({}, 'backup-every = "1h"', "--backup-every is '1h' (hansard.toml): it needs --backup-to"),
    "no TOML": ({}, "port: 5", "the file of settings hansard.toml is not TOML"),
    "no file": (
        {"HANSARD_CONFIG": "missing.toml"},
        "",
        "the file of settings missing.toml cannot be read: No such file",
    ),
}


@pytest.mark.parametrize("command", ["config", "serve"])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_setting_is_named_with_its_value_and_origin(name: str, command: str, shell: Shell) -> None:
    environment, file, message = WRONG[name]
    shell.environment |= environment
    if file:
        (shell.folder / "hansard.toml").write_text(file, encoding="utf-8")
    assert message in shell.fails(2, command)
    assert not (shell.folder / "hansard.db").exists()


ISSUER = Options(oidc="https://id.example", oidc_client_id="c")
WRONG_SIGN_IN = {
    "a client without an issuer": (
        Options(oidc_client_id="c"),
        "--oidc-client-id is 'c' (command line): it needs --oidc",
    ),
    "a secret without an issuer": (
        Options(oidc_client_secret="very"),
        "--oidc-client-secret is '…' (command line): it",
    ),
    "an issuer without TLS": (replace(ISSUER, oidc="http://id.example"), "it must be an https:// address"),
    "an issuer without a host": (
        replace(ISSUER, oidc="https://[id"),
        "--oidc is 'https://[id' (command line): it must",
    ),
    "an issuer with a query": (replace(ISSUER, oidc="https://id.example?x"), "it must be an https:// address"),
    "a callback elsewhere": (replace(ISSUER, oidc_redirect="https://h.example/back"), "ends with /sign-in/callback"),
    "an unknown scope": (
        replace(ISSUER, oidc_scopes="read,own"),
        "--oidc-scopes is 'read,own' (command line): 'own' is no scope: known are read, write, admin",
    ),
}


@pytest.mark.parametrize("name", WRONG_SIGN_IN)
def test_a_wrong_setting_of_sign_in_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options, message = WRONG_SIGN_IN[name]
    with pytest.raises(ValidationError, match=re.escape(message)):
        resolve(options).check()


def test_settings_of_sign_in_reach_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    local = resolve(replace(ISSUER, oidc="http://localhost:9", oidc_scopes="read, write"))
    local.check()
    assert (local.settings().oidc, local.settings().oidc_scopes) == ("http://localhost:9", ("read", "write"))


def test_a_certificate_that_does_not_match_its_key_is_refused(shell: Shell) -> None:
    write_certificate(shell.folder)
    write_certificate(shell.folder, "other.pem", "unused.pem")
    message = shell.fails(2, "serve", "--tls-cert", "cert.pem", "--tls-key", "other.pem")
    assert "--tls-cert is 'cert.pem' (command line): it does not belong to --tls-key other.pem" in message


def test_the_documented_file_is_valid(shell: Shell) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOCUMENTED, re.DOTALL)
    (shell.folder / "hansard.toml").write_text(example, encoding="utf-8")
    assert shown(shell)["workers"] == (4, "hansard.toml")
