"""Two processes `pylogtable run` beside a writer, which are killed with SIGKILL again and again."""

from __future__ import annotations

import json
import os
import random
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import pylogtable
from pylogtable import Topic
from pylogtable.run.members import MEMBERS_DIR
from pylogtable.storage.local import LocalStore
from tests.builders import kafka
from tests.depth import DEEP, new_seed, rounds
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
#: So many looks at most at what processes have done that share topics, and how long each may wait
#: for news: a process that has come waits 10 seconds before it begins.
MOST_LOOKS, LOOK_SECONDS = 240, 0.5
#: With so many topics, none of two processes goes without.
SHARED = [f"t{n}" for n in range(20)]
#: They do not share topics, because they have other tasks: both work on all of them at once.
TASKS = [[], ["--jobs", "publication,merge,compaction"]]


class Runner:
    def __init__(self, folder: Path, options: list[str]) -> None:
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
        #: The topics that it has published, until somebody forgets them.
        self.published: set[str] = set()
        self._told = b""

    def count(self) -> int:
        """How many jobs have changed something, as it has told."""
        assert self.process.stdout is not None
        *lines, self._told = (self._told + (self.process.stdout.read() or b"")).split(b"\n")
        for told in map(json.loads, lines):
            self.done += 1
            if told["job"] == "publication":
                self.published.add(told["topic"])
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


@pytest.mark.parametrize("is_replaced", [True, False] if DEEP else [True])
def test_topics_of_a_killed_process_go_to_those_with_the_same_task(
    tmp_path: Path, is_replaced: bool
) -> None:
    """At once if another one is started in its place on this machine; else after its lease."""
    store = pylogtable.open(tmp_path)
    topics = {name: store.create_topic(name, config=TOPICS["delta"]) for name in SHARED}
    appends = 0

    def append() -> None:
        nonlocal appends
        for topic in topics.values():
            topic.append(kafka(["k"], [f"{appends}"]))
        appends += 1

    first = Runner(tmp_path, [])
    runners = [first]
    try:
        look_until(runners, lambda: bool(first.published), append)
        runners.append(second := Runner(tmp_path, []))
        look_until(runners, lambda: bool(second.published), append)
        first.published.clear()
        look_until(runners, lambda: first.published | second.published == {*SHARED}, append)
        lost = {*SHARED} - second.published
        assert lost
        (claim,) = (path for path in claims(tmp_path) if claimed_by(path) == first.process.pid)
        runners.remove(first)
        first.kill(signal.SIGKILL)
        if is_replaced:
            runners.append(Runner(tmp_path, []))
        append()
        look_until(runners, lambda: all(is_shown(topic) for topic in topics.values()))
        if is_replaced:
            assert claim not in claims(tmp_path)
            assert len(claims(tmp_path)) == 2
        for runner in runners:
            runner.kill(signal.SIGTERM)
    finally:
        for runner in (first, *runners):
            runner.process.kill()
            runner.process.wait()
    print(f"{len(lost)} topics were taken over; {appends} appends to each")
    for name, topic in topics.items():
        log = check_table(topic, LocalStore(tmp_path / name))
        assert topic.read(version=shown_version(log[-1])).read_all() == topic.read().read_all()
        assert topic.count() == appends


def look_until(
    runners: list[Runner], is_done: Callable[[], bool], between: Callable[[], None] = lambda: None
) -> None:
    """Look at what the processes have told until that is so, and do something in between. None of
    them may end meanwhile."""
    for _ in range(MOST_LOOKS):
        for runner in runners:
            runner.count()
        if is_done():
            return
        between()
        with suppress(subprocess.TimeoutExpired):
            runners[-1].process.wait(LOOK_SECONDS)
        assert [runner.process.poll() for runner in runners] == [None] * len(runners)
    raise AssertionError("the processes have not done it")


def is_shown(topic: Topic) -> bool:
    return topic.describe().published[0].lag_records == 0


def claims(folder: Path) -> list[Path]:
    return sorted((folder / MEMBERS_DIR).glob("*.json"))


def claimed_by(path: Path) -> int:
    return int(json.loads(path.read_bytes())["process"])


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
