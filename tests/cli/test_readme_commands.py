"""Every command of the README runs as it stands: the table beside Kafka's, and the examples."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

import pylogtable
from tests.cli.conftest import ROOT, Run

README = (ROOT / "README.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\|(?P<kafka>[^|]+)\| `(?P<ours>pylogtable [^|`]+)` \|$", re.MULTILINE)


def section() -> str:
    return README.split("\n## Command line\n")[1].split("\n## ")[0]


def test_commands_of_the_kafka_table(
    run: Run, store_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    assert pylogtable.open(store_dir).topics() == []


def test_first_example_of_the_readme(run: Run, store_dir: Path) -> None:
    """Line by line, on a store that is here."""
    (script,) = re.findall(r"^```sh\n(export PYLOGTABLE_STORE.*?)^```", section(), re.M | re.S)
    _, *lines = script.splitlines()
    said = []
    for line in lines:
        fed, _, command = line.rpartition(" | ")
        stdin = subprocess.run(["bash", "-c", fed], capture_output=True, check=True).stdout
        words = shlex.split(command, comments=True)[1:]
        words = [word for word in words if word != "--follow"]
        ran = run(*words, stdin=stdin)
        assert (ran.status, ran.err) == (0, ""), (line, ran)
        said.append(ran.out)
    assert said[0] == "Created topic clicks.\n"
    assert said[1].startswith("clicks: 2 records in 1 commit; ")
    assert sorted(said[3].split()) == ["a", "b"]
    assert said[-1].endswith(" can carry topics\n")
    assert pylogtable.open(store_dir).groups() == {"billing": ["clicks"]}
