"""Two processes `pylogtable run` beside a writer, which are killed with SIGKILL again and again."""

from __future__ import annotations

import os
import random
import selectors
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pylogtable
from pylogtable import Topic
from pylogtable.run.members import MEMBERS_DIR
from pylogtable.storage.local import LocalStore
from tests.builders import kafka
from tests.depth import new_seed, rounds
from tests.publish.plain_delta import check_table, shown_version
from tests.publish.plain_iceberg import ORDER, open_table, rows

KILLS = rounds(4, deep=60)
#: So many appends at most until the next kill.
MOST_APPENDS = 150

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")

TOPICS: dict[str, dict[str, Any]] = {
    "delta": {"publish.formats": "delta", "inline.max.bytes": 0},
    "both": {"publish.formats": "delta,iceberg"},
    "state": {"cleanup.policy": "compact", "publish.formats": "delta"},
    "plain": {"inline.max.bytes": 0},
}
#: They do not share topics, because they have other tasks: both work on all of them at once.
TASKS = [[], ["--jobs", "publication,merge,compaction"]]


class Runner:
    def __init__(self, folder: Path, options: list[str]) -> None:
        shutil.rmtree(folder / MEMBERS_DIR, ignore_errors=True)
        command = [sys.executable, "-m", "pylogtable", "run", str(folder), "--yes"]
        self.options = options
        self.process = subprocess.Popen(
            [*command, "--every", "100ms", "--output", "json", *options],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self.done = 0

    def count(self) -> int:
        """How many jobs have changed something, as it has told."""
        assert self.process.stdout is not None
        self.done += (self.process.stdout.read() or b"").count(b"\n")
        return self.done

    def kill(self, wanted: int) -> None:
        self.process.send_signal(wanted)
        _, complaints = self.process.communicate()
        assert b"Traceback" not in complaints, complaints.decode()
        assert self.process.returncode in (-wanted, 128 + wanted)


def test_killed_loops_lose_nothing_and_leave_right_tables(tmp_path: Path) -> None:
    chance = random.Random(new_seed())
    store = pylogtable.open(tmp_path)
    topics = {name: store.create_topic(name, 2, config=TOPICS[name]) for name in TOPICS}
    written: list[str] = []
    runners = [Runner(tmp_path, options) for options in TASKS]
    try:
        for _ in range(KILLS):
            victim = chance.randrange(2)
            work_until(runners[victim], chance.randrange(1, 8), topics, written)
            runners[victim].kill(signal.SIGKILL)
            runners[victim] = Runner(tmp_path, TASKS[victim])
        for runner in runners:
            work_until(runner, 1, topics, written)
            runner.kill(signal.SIGTERM)
    finally:
        for runner in runners:
            runner.process.kill()
            runner.process.wait()
    print(f"{len(written)} appends to each topic")
    subprocess.run(
        [sys.executable, "-m", "pylogtable", "run", str(tmp_path), "--once", "--yes"],
        check=True,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.DEVNULL,
    )
    for name in topics:
        check(name, pylogtable.open(tmp_path).topic(name), tmp_path / name, written)


def work_until(runner: Runner, changes: int, topics: dict[str, Topic], written: list[str]) -> None:
    """Append until the process has done so many things."""
    first = runner.count()
    with selectors.DefaultSelector() as waiting:
        assert runner.process.stdout is not None
        waiting.register(runner.process.stdout, selectors.EVENT_READ)
        for _ in range(MOST_APPENDS):
            for topic in topics.values():
                topic.append(kafka([f"k{len(written) % 7}", "k"], [f"{len(written)}"] * 2))
            written.append(str(len(written)))
            waiting.select(timeout=0.05)
            if runner.count() - first >= changes:
                return


def check(name: str, topic: Topic, folder: Path, written: list[str]) -> None:
    report = topic.verify(data=True)
    assert report, str(report)
    if name == "state":
        newest = topic.latest()
        values = dict(zip(newest["key"].to_pylist(), newest["value"].to_pylist(), strict=True))
        expected = {f"k{n % 7}".encode(): value.encode() for n, value in enumerate(written)}
        assert values == {**expected, b"k": written[-1].encode()}
    else:
        found = topic.read(columns=["value"]).read_all()["value"].to_pylist()
        assert sorted(map(int, found)) == sorted(2 * [*map(int, written)])
    if "publish.formats" in TOPICS[name]:
        log = check_table(topic, LocalStore(folder))
        shown = topic.read(version=shown_version(log[-1])).read_all()
        assert shown == topic.read().read_all()
    if "iceberg" in TOPICS[name].get("publish.formats", ""):
        # pyiceberg reads a list that is null, such as `headers`, as an empty one.
        columns = ["partition", "offset", "timestamp", "key", "value"]
        found = open_table(folder).scan(selected_fields=tuple(columns)).to_arrow()
        expected = topic.read(columns=columns).read_all()
        assert rows(found.select(columns), expected.schema) == expected.sort_by(ORDER).to_pylist()
