"""What every test run says at its head."""

from __future__ import annotations

from tests.contract.backends import ABSENT, PRESENT


def pytest_report_header() -> list[str]:
    """A backend or server that is absent is named, so that a green run cannot be taken for more than it is."""
    return [f"backends: {', '.join(PRESENT)}", f"absent: {', '.join(ABSENT) or 'none'}"]
