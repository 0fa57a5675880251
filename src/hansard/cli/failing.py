"""How a command says that it failed: one line on stderr, or one JSON object for machines."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from hansard.cli.values import STDIN, visible
from hansard.errors import HansardError, ValidationError


def known(error: HansardError, *, as_json: bool) -> int:
    _say(error.code, str(error), error.details, as_json=as_json)
    return error.exit_code


def usage(error: Exception, *, as_json: bool) -> int:
    """A command line that cannot be read."""
    text = " ".join(str(error).replace(STDIN, "-").split())
    _say(ValidationError.code, text, {}, as_json=as_json)
    return ValidationError.exit_code


def system(error: OSError, *, as_json: bool) -> int:
    """The operating system said no: a full disk, a missing folder, a file that may not be read."""
    what = error.strerror or str(error)
    text = f"{what}: {error.filename}" if error.filename else what
    _say(HansardError.code, text, {}, as_json=as_json)
    return HansardError.exit_code


def _say(code: str, message: str, details: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        body = {"error": {"code": code, "message": message, "details": details}}
        text = msgspec.json.encode(body).decode()
    else:
        text = "hansard: " + visible(message.replace("\n", " "))
    print(text, file=sys.stderr)
