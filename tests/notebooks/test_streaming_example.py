"""The streaming example runs, and what it prints is what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "notebooks" / "streaming.py"


def test_killed_job_loses_and_duplicates_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(tmp_path / "logs")],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2. killed the job with" in done.stdout
    assert "finished with 4,000 invoices" in done.stdout
    assert "missing: 0, twice: 0" in done.stdout
