"""Builds the servers that are not there: with Go, and Azurite with npm.

python -m tests.clouds.programs FOLDER [NAME ...] builds them into the folder, all of them if none
is named. What cannot be built is told, and its tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.clouds.servers import KINDS, Server

_GO = "/usr/local/go/bin/go"  # where its manual puts it


def build(kind: type[Server], folder: Path) -> str | None:
    """Why it cannot be built; None if it is there."""
    if kind.found():
        return None
    tool, *arguments = kind.way.split()
    runs = shutil.which(tool) or (_GO if tool == "go" and Path(_GO).exists() else None)
    if runs is None:
        return f"there is no {tool}"
    if tool == "npm":
        arguments += ["--no-fund", "--no-audit", "--prefix", str(folder / "azurite")]
        (folder / "azurite").mkdir(exist_ok=True)
    print(f"building {folder / kind.program} …", flush=True)
    done = subprocess.run(
        [runs, *arguments],
        env={**os.environ, "GOBIN": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    return None if done.returncode == 0 else done.stderr[-2000:].strip()


def main(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYLOGTABLE_SERVERS"] = str(folder)
    for name in names or KINDS:
        if (problem := build(KINDS[name], folder)) is not None:
            print(f"no {name}, so its tests are skipped: `{KINDS[name].way}`: {problem}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
