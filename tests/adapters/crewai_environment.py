"""The environment that CrewAI has for itself: it wants other versions of packages than the other frameworks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-crewai" / ("Scripts" if os.name == "nt" else "bin") / "python"


def why_absent() -> str | None:
    if PYTHON.exists() and (ROOT / ".venv-crewai" / ".ready").exists():
        return None
    return "CrewAI is not installed: make .venv-crewai/.ready"


def run(*arguments: str, home: Path) -> str:
    """What a Python of that environment says. Its home is a folder of the test, and it tells nobody that it ran."""
    quiet = {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}
    homes = {"HOME": str(home), "XDG_DATA_HOME": str(home), "CREWAI_STORAGE_DIR": str(home), "TMPDIR": str(home)}
    path = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    # It has thousands of modules: compiled once, where all others are kept too, and not by every process.
    prefix = os.environ.get("PYTHONPYCACHEPREFIX")
    path |= {"PYTHONPYCACHEPREFIX": prefix} if prefix else {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [str(PYTHON), *arguments],
        env=quiet | homes | path,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    sys.stdout.write(done.stdout)
    return done.stdout
