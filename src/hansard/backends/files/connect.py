"""Opens a folder: a store is used, an empty folder becomes a store, any other folder is refused and not changed."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import Struct

from hansard.backends.files import disk, line_format
from hansard.backends.files.layout import ROOT
from hansard.backends.files.storage import FilesBackend
from hansard.backends.files.tenant import SharedResources
from hansard.errors import Corrupt, FormatMismatch, ValidationError
from hansard.executor import run_in_thread
from hansard.urls import Url

_OPTIONS = ("mode", "durability", "timeout")
_TIMEOUT = 10


class FolderFormat(Struct):
    """The content of `hansard.json`."""

    store: str
    format: int


async def open_backend(url: Url, *, blocking: bool, upgrade: bool) -> FilesBackend:
    """`file:///dir?mode=delta|snapshot&durability=machine|process&timeout=10`"""
    root = folder_of(url)
    mode = url.choice("mode", ("delta", "snapshot"), "delta")
    durability = url.choice("durability", ("machine", "process"), "machine")
    timeout = url.number("timeout") or _TIMEOUT
    url.finish(_OPTIONS)
    common = SharedResources(root, durable=durability == "machine", snapshots=mode == "snapshot", timeout=timeout)
    if blocking:
        _prepare(common)
    else:
        await run_in_thread(_prepare, common)
    return FilesBackend(common, blocking=blocking)


def folder_of(url: Url) -> Path:
    """`file:///dir` and `file://localhost/dir` are absolute; `file:dir` and `file://./dir` are not."""
    host, path = url.netloc, url.path
    if host in (".", ".."):
        path = host + path
    elif host not in ("", "localhost"):
        raise ValidationError(f"{url.text!r} names a host, {host!r}: write file:///{host}{path} or file:{host}{path}")
    if os.name == "nt":
        path = path.lstrip("/")
    if not path.strip("/") or "\0" in path:
        raise ValidationError(
            f"{url.text!r} names no folder: write for example 'file:///var/lib/chats' or 'file:chats'"
        )
    return Path(path).absolute()


def _prepare(common: SharedResources) -> None:
    with disk.map_errors():
        root = common.root
        if root.exists() and not root.is_dir():
            raise ValidationError(f"{root} is not a folder")
        format_file = root / ROOT
        if format_file.exists():
            _check(format_file)
            return
        if root.is_dir() and not _is_empty(root):
            raise FormatMismatch(
                f"{root} is not empty and has no {ROOT}: it is not a Hansard store, and was not changed",
                found="a foreign folder",
                wanted=str(line_format.FORMAT),
            )
        common.disk.make_folder(root)
        common.disk.replace(format_file, [msgspec.json.encode(FolderFormat("hansard", line_format.FORMAT)) + b"\n"])


def _is_empty(root: Path) -> bool:
    """Whether a folder is empty, or another process is creating the store in it."""
    return all(path.name.startswith(ROOT) for path in root.iterdir())


def _check(format_file: Path) -> None:
    try:
        found = msgspec.json.decode(format_file.read_bytes(), type=FolderFormat)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"{format_file} is damaged: {error}", where=str(format_file)) from error
    line_format.check_format(found.format, str(format_file))
