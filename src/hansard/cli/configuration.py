"""The settings of `hansard serve`: from options, the environment and a file, in this order.

Every option has an environment variable (`--log-level` is `HANSARD_LOG_LEVEL`) and a key in the TOML file
(`log-level = "info"`). Each value carries its origin, so that errors and `hansard config` can name it.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec
from cyclopts import Parameter
from msgspec import Struct

from hansard.backends.schemes import DEFAULT_URL
from hansard.cli import extras
from hansard.cli.context import EmbedderName
from hansard.cli.values import moment
from hansard.errors import ValidationError
from hansard.server.addresses import CALLBACK, is_loopback
from hansard.server.endpoints import SCOPES
from hansard.server.key_file import DEFAULT_FILE as DEFAULT_KEYS
from hansard.server.settings import Settings
from hansard.server.store_keys import IN_STORE
from hansard.urls import shown, suggest

FILE = "hansard.toml"
"""The file that is read if `--config` and `$HANSARD_CONFIG` name none, and if it exists."""
DEFAULT = "default"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `hansard serve`. None means that the command line does not set it."""

    host: Annotated[
        str | None, Parameter(help="The address to listen on. By default, only this machine can connect.")
    ] = None
    port: Annotated[int | None, Parameter(help="The port; 0 selects a free one.")] = None
    keys: Annotated[Path | None, Parameter(help="The key file: $HANSARD_KEYS, else hansard-keys.json; or `store`.")] = (
        None
    )
    require_key: Annotated[
        bool | None, Parameter(negative="", help="Require a key on this machine, too, even if none exists yet.")
    ] = None
    jwks: Annotated[str | None, Parameter(help="URL or path of the JSON Web Key Set that verifies tokens.")] = None
    jwt_issuer: Annotated[str | None, Parameter(help="The required issuer of tokens.")] = None
    jwt_audience: Annotated[str | None, Parameter(help="The required audience of tokens.")] = None
    oidc: Annotated[
        str | None, Parameter(help="Issuer of OpenID Connect, such as https://id.example: people sign in there.")
    ] = None
    oidc_client_id: Annotated[str | None, Parameter(help="The id of this server at the issuer.")] = None
    oidc_client_secret: Annotated[
        str | None, Parameter(help="Its secret; rather set $HANSARD_OIDC_CLIENT_SECRET. Public clients have none.")
    ] = None
    oidc_redirect: Annotated[
        str | None,
        Parameter(help="The address of the page's sign-in/callback, behind a proxy that changes the host or path."),
    ] = None
    oidc_tenant: Annotated[
        str | None, Parameter(help="The tenant of everybody who signs in; by default, the claim hansard_tenant.")
    ] = None
    oidc_user_claim: Annotated[
        str | None, Parameter(help="The claim that names the user, such as sub; by default, hansard_user, if any.")
    ] = None
    oidc_scopes: Annotated[
        str | None,
        Parameter(help="The scopes of everybody who signs in, such as read,write; by default, the claim scope."),
    ] = None
    cors_origin: Annotated[
        tuple[str, ...] | None,
        Parameter(negative="", help="Origin of a web page that may use the API; may be repeated."),
    ] = None
    upstream: Annotated[
        str | None, Parameter(help="A model endpoint, such as https://api.openai.com/v1; its key is $OPENAI_API_KEY.")
    ] = None
    model: Annotated[
        str | None, Parameter(help="The model at --upstream that answers on the page; by default, an echo answers.")
    ] = None
    max_relays: Annotated[int | None, Parameter(help="Live sessions that a process may relay to it at a time.")] = None
    embedder: EmbedderName = None
    audit_log: Annotated[Path | None, Parameter(help="The file of the audit log.")] = None
    tls_cert: Annotated[
        Path | None, Parameter(help="The file of a certificate (PEM): serve over TLS. Needs --tls-key.")
    ] = None
    tls_key: Annotated[Path | None, Parameter(help="The file of its private key (PEM).")] = None
    trusted_proxy: Annotated[
        tuple[str, ...] | None,
        Parameter(
            negative="",
            help="Address or network of a proxy whose X-Forwarded-For and -Proto are believed; may be repeated.",
        ),
    ] = None
    otlp: Annotated[
        str | None, Parameter(help="Send a span of every request to this OTLP endpoint, such as http://host:4318.")
    ] = None
    drain: Annotated[float | None, Parameter(help="Seconds that requests and streams may continue after SIGTERM.")] = (
        None
    )
    backup_to: Annotated[
        str | None, Parameter(help="Back up to this folder, or to s3://BUCKET/PREFIX?endpoint=URL, on a schedule.")
    ] = None
    backup_every: Annotated[str | None, Parameter(help="The interval of backups, such as 12h or 1d.")] = None
    backup_keep: Annotated[int | None, Parameter(help="Number of backups to keep.")] = None
    purge_every: Annotated[
        str | None, Parameter(help="Remove what has expired at this interval, such as 1h or 1d.")
    ] = None
    spool: Annotated[
        Path | None, Parameter(help="The folder in which captures on this machine spool messages, for /metrics.")
    ] = None
    workers: Annotated[
        int | None, Parameter(help="Number of processes. More than one needs a store that processes can share.")
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        Parameter(help="The log level; logs are JSON on stderr. Level info logs every request."),
    ] = None
    config: Annotated[
        Path | None, Parameter(help="The file of settings: $HANSARD_CONFIG, else hansard.toml if it exists.")
    ] = None


_DEFAULTS: dict[str, Any] = {
    "url": DEFAULT_URL,
    "port": 8787,
    "keys": Path(DEFAULT_KEYS),
    "drain": 10.0,
    "backup_every": "1d",
    "backup_keep": 7,
    "workers": 1,
    "log_level": "warning",
    "cors_origin": (),
    "trusted_proxy": (),
}
_RANGES = {
    "port": (0, 65535),
    "workers": (1, 64),
    "max_relays": (0, 1_000_000),
    "drain": (0, 3600),
    "backup_keep": (1, 10_000),
}
_NEEDS = {
    "model": "upstream",
    "oidc": "oidc_client_id",
    "oidc_client_id": "oidc",
    "oidc_client_secret": "oidc",
    "oidc_redirect": "oidc",
    "oidc_tenant": "oidc",
    "oidc_user_claim": "oidc",
    "oidc_scopes": "oidc",
    "jwt_issuer": "jwks",
    "jwt_audience": "jwks",
    "tls_cert": "tls_key",
    "tls_key": "tls_cert",
}
"""Settings that mean nothing without another one."""
_SECRETS = ("oidc_client_secret",)
"""Settings whose value is never shown."""


class Value(Struct, frozen=True):
    """A setting, and where it was set."""

    name: str
    value: Any
    origin: str

    @property
    def option(self) -> str:
        return _option(self.name)

    @property
    def shown(self) -> Any:
        """The value without secrets."""
        if self.name in _SECRETS and self.value is not None:
            return "…"
        if isinstance(self.value, Path):
            return str(self.value)
        return shown(self.value) if isinstance(self.value, str) else self.value

    def wrong(self, problem: str) -> ValidationError:
        return ValidationError(f"{self.option} is {self.shown!r} ({self.origin}): {problem}")


class Configuration(Mapping[str, Value]):
    """Every setting with its value and origin."""

    def __init__(self, values: dict[str, Value]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def of(self, name: str) -> Any:
        return self._values[name].value

    def check(self) -> None:
        """Refuses values that are out of range, contradict each other, or need an extra that is not installed."""
        for name, (low, high) in _RANGES.items():
            if not low <= self.of(name) <= high:
                raise self[name].wrong(f"it must be between {low} and {high}")
        for name, other in _NEEDS.items():
            if self.of(name) is not None and self.of(other) is None:
                raise self[name].wrong(f"it needs {_option(other)}, which is not set")
        self._check_certificate()
        self._check_proxies()
        self._check_backups()
        self._check_addresses()
        self._check_sign_in()

    def _check_certificate(self) -> None:
        certificate, key = self.of("tls_cert"), self.of("tls_key")
        if certificate is None:
            return
        for name in ("tls_cert", "tls_key"):
            if not self.of(name).is_file():
                raise self[name].wrong("there is no such file")
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
        except ssl.SSLError as error:
            reason = "it does not belong to" if "mismatch" in str(error).lower() else "it cannot be used with"
            raise self["tls_cert"].wrong(f"{reason} --tls-key {key} ({error.reason or error})") from error

    def _check_backups(self) -> None:
        where = self.of("backup_to")
        self._seconds("backup_every")
        self._seconds("purge_every")
        if where is None:
            for name in ("backup_every", "backup_keep"):
                if self[name].origin != DEFAULT:
                    raise self[name].wrong("it needs --backup-to, which is not set")
        elif not where.startswith("s3://") and not Path(where).is_dir():
            raise self["backup_to"].wrong("there is no such folder")

    def _seconds(self, name: str) -> float | None:
        """Returns an interval in seconds; None if it is not set."""
        if self.of(name) is None:
            return None
        try:
            age = moment(self.of(name), name)
        except ValidationError as error:
            raise self[name].wrong("write an interval such as 12h or 1d") from error
        if not isinstance(age, timedelta):
            raise self[name].wrong("write an interval such as 12h or 1d")
        if age.total_seconds() < 1:
            raise self[name].wrong("it must be at least a second")
        return age.total_seconds()

    def _check_proxies(self) -> None:
        for proxy in self.of("trusted_proxy"):
            try:
                ipaddress.ip_network(proxy, strict=False)
            except ValueError as error:
                raise self["trusted_proxy"].wrong(f"{proxy!r} is neither an address nor a network") from error

    def _check_addresses(self) -> None:
        for name in ("otlp", "upstream"):
            value = self.of(name)
            if value is not None and not _is_http(value):
                raise self[name].wrong("it must begin with http:// or https://")

    def _check_sign_in(self) -> None:
        issuer, callback = self.of("oidc"), self.of("oidc_redirect")
        if issuer is not None and not _is_safe(issuer):
            raise self["oidc"].wrong("it must be an https:// address; http:// is for this machine only")
        if callback is not None and not (_is_http(callback) and callback.endswith(CALLBACK)):
            raise self["oidc_redirect"].wrong(f"it must be an http(s):// address that ends with {CALLBACK}")
        for word in self._oidc_scopes() or ():
            if word not in SCOPES:
                raise self["oidc_scopes"].wrong(f"{word!r} is no scope: known are {', '.join(SCOPES)}")

    def _oidc_scopes(self) -> tuple[str, ...] | None:
        given = self.of("oidc_scopes")
        return None if given is None else tuple(word.strip() for word in given.split(","))

    def require_extras(self, command: str) -> None:
        also = ["jwt"] if self.of("jwks") or self.of("oidc") else []
        also += ["embeddings"] if self.of("embedder") == "wordllama" else []
        also += ["s3"] if (self.of("backup_to") or "").startswith("s3://") else []
        also += ["otlp"] if self.of("otlp") else []
        extras.require(command, self.of("url"), also=also)

    def settings(self) -> Settings:
        values = {name: self.of(name) for name in Settings.__struct_fields__ if name in self._values}
        values["keys_in_store"] = are_in_store(self.of("keys"))
        values["keys"] = None if values["keys_in_store"] else self.of("keys")
        values["cors_origins"] = tuple(self.of("cors_origin"))
        values["backup_seconds"] = self._seconds("backup_every")
        values["purge_seconds"] = self._seconds("purge_every")
        values["oidc_scopes"] = self._oidc_scopes()
        values["drain_seconds"] = self.of("drain")
        values["trusted_proxies"] = tuple(self.of("trusted_proxy"))
        return Settings(**values, upstream_key=os.environ.get("OPENAI_API_KEY"))


def _is_http(address: str) -> bool:
    return address.startswith(("http://", "https://"))


def _is_safe(address: str) -> bool:
    """Whether an address has a host that is reached over TLS, or that is this machine."""
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError:
        return False
    if not host or parts.query or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _variable(name: str) -> str:
    return "HANSARD_" + name.upper()


@cache
def _types() -> dict[str, Any]:
    """Returns the type of every setting."""
    hints = get_type_hints(Options)
    return {"url": str | None} | {field.name: hints[field.name] for field in fields(Options) if field.name != "config"}


def resolve(options: Options, url: str | None = None) -> Configuration:
    """Reads all settings. Values are converted to their types; `Configuration.check` compares them."""
    source, file = read_file(options.config)
    given = {"url": url} | {field.name: getattr(options, field.name) for field in fields(options)}
    return Configuration({name: _value(name, given[name], source, file) for name in _types()})


def _value(name: str, given: Any, source: str, file: dict[str, Any]) -> Value:
    if given is not None:
        return Value(name, given, "command line")
    if text := os.environ.get(_variable(name)):
        return _converted(Value(name, _list_of(name, text), f"environment variable {_variable(name)}"), strict=False)
    if name in file:
        return _converted(Value(name, file[name], source), strict=True)
    return Value(name, _DEFAULTS.get(name, getattr(_NO_SETTINGS, name, None)), DEFAULT)


_NO_SETTINGS = Settings()


def _list_of(name: str, text: str) -> Any:
    """Returns the parts of a variable that holds a list, separated by commas; else the text."""
    default = _DEFAULTS.get(name)
    return [part.strip() for part in text.split(",")] if isinstance(default, tuple) else text


def _converted(value: Value, *, strict: bool) -> Value:
    given = value.value
    if isinstance(given, str) and _types()[value.name] == (bool | None):
        given = {"yes": True, "on": True, "no": False, "off": False}.get(given.lower(), given)
    wanted = _types()[value.name]
    try:
        found = msgspec.convert(given, wanted, strict=strict, dec_hook=lambda kind, each: _path(each))
    except (msgspec.ValidationError, TypeError) as error:
        choices = [choice for part in get_args(wanted) if get_origin(part) is Literal for choice in get_args(part)]
        problem = f"it must be one of {', '.join(choices)}" if choices else str(error).replace(" | null", "")
        raise value.wrong(problem) from error
    return Value(value.name, found, value.origin)


def _path(value: Any) -> Path:
    if not isinstance(value, str):
        raise msgspec.ValidationError(f"Expected a path, got `{type(value).__name__}`")
    return Path(value)


def read_file(named: Path | None = None) -> tuple[str, dict[str, Any]]:
    """Returns the name of the file of settings and its values; nothing if there is no file."""
    variable = os.environ.get("HANSARD_CONFIG")
    path = named or (Path(variable) if variable else None)
    if path is None and not Path(FILE).exists():
        return FILE, {}
    path = path or Path(FILE)
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ValidationError(f"the file of settings {path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValidationError(f"the file of settings {path} is not TOML: {error}") from error
    known = tuple(name.replace("_", "-") for name in _types())
    for key in found:
        if key not in known:
            raise ValidationError(f"unknown setting {key!r} in {path}{suggest(key, known)}")
    return str(path), {key.replace("-", "_"): value for key, value in found.items()}


def store_url() -> str:
    """Returns the store that a command uses if it is given none."""
    return str(resolve(Options()).of("url"))


def keys_path() -> Path:
    """Returns the key file that a command uses if it is given none."""
    return Path(resolve(Options()).of("keys"))


def are_in_store(keys: Path) -> bool:
    return keys == Path(IN_STORE)
