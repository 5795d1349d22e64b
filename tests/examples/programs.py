"""Programs that tests of the examples start."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path


def run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """What it prints. Fails if the command does."""
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, **environment},
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def until(done: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)
