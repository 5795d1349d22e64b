"""Every command of the README runs as it stands: the table beside Kafka's, and the examples."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import pylogtable
from tests.cli.conftest import ROOT, Run, environment

README = (ROOT / "README.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\|(?P<kafka>[^|]+)\| `(?P<ours>pylogtable [^|`]+)` \|$", re.MULTILINE)


def section() -> str:
    return README.split("\n## Command line\n")[1].split("\n## ")[0]


def test_the_table_beside_kafkas(
    run: Run, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In order, on one store, as somebody would try them out."""
    rows = ROW.findall(section())
    assert len(rows) >= 20
    named = " ".join(kafka for kafka, _ in rows)
    for tool in ("topics", "configs", "console-producer", "console-consumer", "get-offsets",
                 "consumer-groups", "delete-records", "dump-log"):  # fmt: skip
        assert f"kafka-{tool}" in named
    monkeypatch.chdir(tmp_path)
    Path("lines.txt").write_text("u1:a\nu2:b\nu3:c\n")
    doomed = {"partitions": [{"topic": "orders", "partition": 0, "offset": 0}]}
    Path("delete.json").write_text(json.dumps(doomed))
    said: dict[str, str] = {}
    for _, ours in rows:
        command, _, file = ours.partition(" < ")
        words = shlex.split(command)[1:]
        if "--follow" in words:
            words += ["--to", "latest"]
        ran = run(*words, stdin=Path(file).read_bytes() if file else b"")
        assert ran.status == 0, (ours, ran)
        said[ours] = ran.out
    assert sorted(said["pylogtable consume orders --count 10"].split()) == ["a", "b", "c"]
    assert said["pylogtable topics list"] == "orders\n"
    assert said["pylogtable groups list"] == "billing\n"
    assert pylogtable.open(place).topics() == []


def test_the_first_example_in_a_real_shell(place: Path) -> None:
    """With the program's name as a function, and a store that is here."""
    (script,) = re.findall(r"^```sh\n(export PYLOGTABLE_STORE.*?)^```", section(), re.M | re.S)
    lines = [line for line in script.splitlines() if "--follow" not in line][1:]
    given = pylogtable.open(place)
    lines.insert(3, "pylogtable consume clicks --group billing > /dev/null")
    program = f'set -e -o pipefail\npylogtable() {{ "{sys.executable}" -m pylogtable "$@"; }}\n'
    ran = subprocess.run(
        ["bash", "-c", program + "\n".join(lines)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("Created topic clicks.\nclicks: 2 records in 1 commit; ")
    assert ran.stdout.endswith(" can carry topics\n")
    assert given.groups() == {"billing": ["clicks"]}
