"""Installs Chromium for the tests of the web page, if possible. Otherwise, those tests are skipped."""

import os
import shutil
import subprocess
from functools import cache

SHELL = "chromium-headless-shell"
"""The same engine without windows: a page takes a third of the processor time."""
NAMES = (SHELL, "chromium", "chromium-browser", "google-chrome")
INSTALL = ("install", "--yes", "--no-install-recommends")
PATIENCE = 300


@cache
def path() -> str | None:
    """Returns the Chromium that $HANSARD_TEST_CHROMIUM names, else the first on the PATH that starts."""
    named = os.environ.get("HANSARD_TEST_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name)) and _starts(found)), None)


def _starts(program: str) -> bool:
    """Whether the program works: Ubuntu's `chromium-browser` only prints how to install it."""
    try:
        done = subprocess.run(
            [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def why_not() -> str | None:
    """Installs Chromium if it is missing, without windows if possible.

    Returns None, or the reason why there is none.
    """
    if os.environ.get("HANSARD_TEST_CHROMIUM") or shutil.which(SHELL):
        return None
    reason = _why_not_installed(is_needed=path() is None)
    path.cache_clear()
    return None if path() else reason


def _why_not_installed(*, is_needed: bool) -> str | None:
    if shutil.which("apt-get") is None:
        return "there is no apt-get to install it with"
    if os.geteuid() != 0:
        return "installing it needs root"
    try:
        reason = _apt(*INSTALL, SHELL)
        if reason is None or not is_needed:
            return reason
        # The package lists may be missing or outdated; and not every system has both packages.
        return _apt("update") or (_apt(*INSTALL, SHELL) and _apt(*INSTALL, "chromium"))
    except subprocess.TimeoutExpired:
        return f"apt-get took longer than {PATIENCE} seconds"


def _apt(*arguments: str) -> str | None:
    done = subprocess.run(
        ["apt-get", *arguments],
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return None if done.returncode == 0 else f"apt-get failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}"


if __name__ == "__main__" and (reason := why_not()):
    print(f"Chromium is not installed ({reason}): the tests that need it will be skipped")
