"""The extras that a command needs, so that one message names all that are missing."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from hansard.errors import Unsupported

MODULES = {
    "cli": ("cyclopts", "rich"),
    "server": (
        *("cyclopts", "rich", "starlette", "uvicorn", "anyio", "prometheus_client", "websockets"),
        *("jinja2", "nh3", "pyromark"),
    ),
    "mcp": ("mcp",),
    "postgres": ("asyncpg",),
    "redis": ("redis",),
    "http": ("httpx",),
    "openai": ("openai",),
    "jwt": ("jwt", "cryptography"),
    "cassandra": ("cassandra",),
    "embeddings": ("wordllama",),
    "onnx": ("onnxruntime", "tokenizers"),
    "collect": ("watchfiles",),
    "parquet": ("pyarrow",),
    "otlp": ("opentelemetry.exporter.otlp.proto.http",),
    "s3": ("obstore",),
}
"""The modules that each extra brings."""
_COMMANDS = {"serve": "server", "demo": "server", "open": "server", "mcp": "mcp"}


def of_command(name: str | None) -> str:
    """Returns the extra of a command."""
    return _COMMANDS.get(name or "", "cli")


def of_url(url: str) -> str | None:
    """Returns the extra of a store's URL."""
    from hansard.backends.schemes import SCHEMES

    scheme = SCHEMES.get(url.partition(":")[0].lower())
    return None if scheme is None else scheme.extra


def missing(extras: Iterable[str]) -> list[str]:
    """Returns those of the extras that are not completely installed. An unknown one is reported where it is used."""
    return [extra for extra in dict.fromkeys(extras) if not all(map(_is_there, MODULES.get(extra, ())))]


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent is missing
        return False


def require(command: str, *urls: str, also: Iterable[str] = ()) -> None:
    """Raises `Unsupported` if a command, its stores or its settings need an extra that is not installed."""
    needed = [of_command(command), *also, *(extra for extra in map(of_url, urls) if extra)]
    if absent := missing(needed):
        raise Unsupported(message(f"hansard {command}", absent), capability=absent[0])


def message(what: str, extras: list[str]) -> str:
    word = "an extra" if len(extras) == 1 else "extras"
    return f"{what} needs {word}: pip install 'hansard[{','.join(extras)}]'"
