"""`pylogtable mirror`, `compare` and `topics promote`."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pylogtable
from pylogtable import MirrorProgress, Topic
from pylogtable.cli.messages import Speed
from pylogtable.cli.mirror import progress_text
from pylogtable.cli.session import Session
from tests.builders import kafka, rows
from tests.cli.conftest import Result, Run

COLUMNS = ("partition", "offset", "timestamp", "key", "value")


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """The directory of a second store, which does not exist yet."""
    return tmp_path / "backup"


def records(topic: Topic) -> list[object]:
    return rows(topic.read(), *COLUMNS)


def test_mirror_copies_and_a_repeat_brings_what_is_new(
    run: Run, clicks: Topic, store_dir: Path, backup: Path
) -> None:
    done = run("mirror", store_dir / "clicks", backup)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("clicks: 4 records copied, ")
    assert ", up to date; " in done.out
    copy = pylogtable.open(backup).topic("clicks")
    assert records(copy) == records(clicks)
    clicks.append(kafka(["k5"], ["e"]))
    assert run("mirror", "clicks", backup).out.startswith("clicks: 1 record copied, ")
    assert records(copy) == records(clicks)
    assert run("mirror", "clicks", backup).out.startswith("clicks: no new records")


def test_mirror_gives_json(run: Run, clicks: Topic, backup: Path) -> None:
    clicks.group("billing").commit({0: 2})
    given = ["mirror", "clicks", backup, "--groups", "--check", "--output", "json"]
    (row,) = run(*given).json
    assert (row["topic"], row["records"], row["error"]) == ("clicks", 4, None)
    assert (row["source"], row["copy"]) == (clicks.url, pylogtable.open(backup).url + "/clicks")
    assert row["groups"] == {"billing": {"0": 2}}
    assert row["check"]["equal"] is True
    first = row["check"]["partitions"][0]
    assert first["digest"] == first["other_digest"]
    assert pylogtable.open(backup).topic("clicks").group("billing").positions() == {0: 2}


def test_groups_are_shown_and_those_in_use_are_named(run: Run, clicks: Topic, backup: Path) -> None:
    clicks.group("billing").commit({0: 2, 1: 1})
    assert "group billing: 0:2 1:1\n" in run("mirror", "clicks", backup, "--groups").out
    copy = pylogtable.open(backup).topic("clicks")
    used = copy.group("billing")
    used.positions()
    used.commit({0: 3})
    again = run("mirror", "clicks", backup, "--groups")
    assert again.status == 0
    assert "not copied: group billing: somebody has used this group" in again.err


def test_check_prints_counts_and_hashes_and_finds_a_difference(
    run: Run, clicks: Topic, backup: Path
) -> None:
    done = run("mirror", "clicks", backup, "--check")
    assert done.status == 0
    head, first, second = (line.split() for line in done.lines[1:4])
    assert head[:3] == ["PARTITION", "OFFSETS", "RECORDS"]
    assert first[:5] == ["0", "[0,3)", "3", "[0,3)", "3"]
    assert first[5] == first[6] != second[5]
    assert done.lines[4].startswith("equal: 2 partitions compared")

    # Somebody else's topic under the name of the copy has other records at the same offsets.
    other = pylogtable.open(backup).create_topic("other", partitions=2)
    other.append(kafka(["k1", "k2", None, "x"], ["a", "b", "c", "d"],
                       partition=clicks.read().read_all()["partition"]))  # fmt: skip
    wrong = run("compare", "clicks", backup / "other")
    assert wrong.status == 1
    assert "partition 1: the records from offset 0 to 1 differ" in wrong.out
    clicks.append(kafka(["k5"], ["e"]))
    assert run("compare", "clicks", backup / "clicks").status == 1
    assert run("compare", "clicks", backup / "clicks", "--so-far").status == 0
    report = run("compare", "clicks", backup / "clicks", "--no-data", "--output", "json")
    assert report.status == 1
    assert (report.json["equal"], report.json["same_so_far"]) == (False, True)
    assert report.json["partitions"][0]["digest"] is None


def test_check_does_not_mind_a_copy_that_keeps_other_records_by_its_own_settings(
    run: Run, clicks: Topic, backup: Path
) -> None:
    given = ["mirror", "clicks", backup, "--retention", "own", "-c", "retention.ms=-1"]
    assert run(*given).status == 0
    copy = pylogtable.open(backup).topic("clicks")
    assert copy.describe().config["retention.ms"] == "-1"
    copy.delete_records({0: 2})
    assert run("mirror", "clicks", backup, "--check").status == 0
    assert run("compare", "clicks", backup / "clicks").status == 1
    copy.erase(keys=["k4"])
    differs = run("mirror", "clicks", backup, "--check", "--output", "json")
    assert differs.status == 1
    assert differs.json[0]["check"]["same_so_far"] is False
    assert differs.json[0]["error"] is None


def test_all_topics_or_a_name(run: Run, clicks: Topic, orders: Topic, backup: Path) -> None:
    assert run("mirror", "--all-topics", backup).out.count("up to date") == 2
    assert pylogtable.open(backup).topics() == ["clicks", "orders"]
    assert run("mirror", "clicks", backup, "--name", "clicks-2").status == 0
    assert pylogtable.open(backup).topic("clicks-2").count() == 4
    several = run("mirror", "clicks", "orders", backup)
    assert [line.partition(":")[0] for line in several.lines] == ["clicks", "orders"]


def test_a_topic_that_fails_does_not_stop_the_others(
    run: Run, clicks: Topic, orders: Topic, backup: Path
) -> None:
    pylogtable.open(backup).create_topic("clicks", partitions=2)
    done = run("mirror", "--all-topics", backup)
    done.failed("clicks: the topic at", "is no copy", "under another name")
    assert done.out.startswith("orders: no new records")
    both = run("mirror", "--all-topics", backup, "--output", "json")
    assert both.status == 1
    assert [(row["topic"], row["error"] is None) for row in both.json] == [
        ("clicks", False),
        ("orders", True),
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["clicks"], ["give the topics and the store"]),
        ([], ["TO_STORE"]),
        (["--all-topics", "clicks", "./b"], ["give the topics", "--all-topics"]),
        (["clicks", "orders", "./b", "--name", "x"], ["--name is for a single topic"]),
        (["clicks", "./b", "--retention", "mine"], ["'mine'", "source", "own"]),
        (["clicks", "./b", "-c", "x"], ["'x' is not name=value"]),
        (["clicks", ""], ["empty"]),
        (["clicks", "orders"], ["'orders' is a topic of", "after the topics", "./orders"]),
    ],
)
def test_wrong_usage_copies_nothing(
    run: Run, clicks: Topic, orders: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    given: list[str], words: list[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    run("mirror", *given).failed(*words, status=2)
    assert not (tmp_path / "b").exists()


def test_errors_are_one_line(run: Run, clicks: Topic, store_dir: Path, backup: Path) -> None:
    run("mirror", "clikcs", backup).failed("there is no topic 'clikcs'", "clicks")
    run("mirror", "clicks", store_dir).failed("cannot be a copy of itself")
    run("mirror", "clicks", backup, "-c", "retention.ms=-1").failed("--retention own")
    bad = run("mirror", "clicks", backup, "--to-storage-options", "[1]")
    bad.failed("--to-storage-options must be a JSON object", status=2)
    run("compare", "clicks", backup / "nope").failed("there is no topic 'nope'")
    run("compare", "clicks", "clicks").failed("OTHER is the path", "not 'clicks'", status=2)
    assert pylogtable.open(backup).topics() == []


def test_promoted_copy_is_a_topic_of_its_own(
    run: Run, clicks: Topic, store_dir: Path, backup: Path
) -> None:
    run("mirror", "clicks", backup)
    shown = run("topics", "describe", backup / "clicks").out
    assert f"Mirror: copy of {clicks.url}, at version 1 of it, retention of the source\n" in shown
    assert "<td>mirror</td><td>copy of " in pylogtable.open(backup).topic("clicks")._repr_html_()
    refused = run("topics", "alter", backup / "clicks", "--partitions", "9")
    refused.failed("alter is refused", clicks.url, "promote")
    run("topics", "promote", backup / "clicks").failed(
        "this would end for good: the mirroring of topic clicks (", "add --yes"
    )
    assert run("mirror", "clicks", backup).status == 0
    done = run("topics", "promote", backup / "clicks", "--yes")
    assert (done.status, done.out) == (0, "Promoted topic clicks, now version 2.\n")
    described = run("topics", "describe", backup / "clicks", "--output", "json").json[0]
    assert described["mirror"]["ended"] == 2
    assert (
        "topic of its own since version 2; it was a copy of "
        in run("topics", "describe", backup / "clicks").out
    )
    assert run("topics", "alter", backup / "clicks", "--partitions", "9").status == 0
    run("mirror", "clicks", backup).failed("has records of its own since its version 2")
    again = run("topics", "promote", backup / "clicks")
    told = "It was promoted before: topic clicks, now version 3.\n"
    assert (again.status, again.out) == (0, told)
    both = run("topics", "promote", backup / "clicks", backup / "nope", "--yes")
    both.failed("there is no topic 'nope'")
    assert both.out == ""
    run("topics", "promote", "clicks").failed("no copy of another one")
    assert run("topics", "describe", "clicks", "--output", "json").json[0]["mirror"] is None


def test_all_copies_of_a_store_are_promoted(
    run: Run, clicks: Topic, store_dir: Path, backup: Path
) -> None:
    pylogtable.open(store_dir).create_topic("users", 1)
    assert run("mirror", "--all-topics", backup).status == 0
    copies = pylogtable.open(backup)
    copies.create_topic("local", 1)
    run("topics", "promote", "--store", backup).failed("give the topics, or --all-topics", status=2)
    given = ["topics", "promote", "--all-topics", "--store", backup]
    run(*given, "clicks").failed("give the topics, or --all-topics", status=2)
    done = run(*given, "--yes")
    assert done.status == 0
    assert done.out == (
        "Promoted topic clicks, now version 2.\nPromoted topic users, now version 2.\n"
    )
    assert "local is no copy, and stays as it is" in done.err
    ended = {name: copies.topic(name).describe().mirror for name in copies.topics()}
    assert {name: m is not None and m.ended for name, m in ended.items()} == {
        "clicks": 2, "local": False, "users": 2
    }  # fmt: skip


def wait_for(backup: Path, name: str, records: int) -> None:
    """Until the copy has them. By then the program has taken over the signals."""
    store, deadline = pylogtable.open(backup), time.monotonic() + 60
    while name not in store.topics() or store.topic(name).count() < records:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def follow_until_stopped(
    run: Run, others: Callable[[], None], *given: object, **intervals: float
) -> Result:
    """Run a mirror that follows, do something beside it, and end it by SIGTERM."""

    def work_and_stop() -> None:
        try:
            others()
        finally:  # or the mirror would go on for ever
            os.kill(os.getpid(), signal.SIGTERM)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(work_and_stop)
        done = run("mirror", *given, "--follow", session=Session(**intervals))
        other.result()
    assert done.status == 143
    return done


@pytest.mark.parametrize("number", [1, 2], ids=["one topic", "two topics"])
def test_sigterm_ends_a_mirror_that_follows_with_a_report(
    run: Run, clicks: Topic, orders: Topic, backup: Path, number: int
) -> None:
    names = ["clicks", "orders"][:number]

    def append() -> None:
        wait_for(backup, "clicks", 4)
        clicks.append(kafka(["k5"], ["e"]))
        wait_for(backup, "clicks", 5)

    done = follow_until_stopped(run, append, *names, backup, "--output", "json")
    assert done.err == ""
    assert [row["topic"] for row in done.json] == names
    assert (done.json[0]["records"], done.json[0]["lag"]) == (5, {"0": 0, "1": 0})


@pytest.mark.parametrize(("number", "what"), [(1, "clicks"), (2, "2 topics")])
def test_mirror_that_follows_without_a_terminal_says_how_far_it_is(
    run: Run, clicks: Topic, orders: Topic, backup: Path, number: int, what: str
) -> None:
    names = ["clicks", "orders"][:number]

    def others() -> None:
        wait_for(backup, "clicks", 4)

    done = follow_until_stopped(run, others, *names, backup, line_seconds=0.0)
    said = [
        line for line in done.err.splitlines() if line.startswith(f"mirroring {what} 4 records")
    ]
    assert said
    assert said[-1].endswith("lag none")


def test_all_topics_are_followed_and_new_ones_too(
    run: Run, clicks: Topic, store_dir: Path, backup: Path
) -> None:
    def create() -> None:
        wait_for(backup, "clicks", 4)
        pylogtable.open(store_dir).create_topic("late").append(kafka(["a"]))
        wait_for(backup, "late", 1)

    given = ["--all-topics", backup, "--output", "json"]
    done = follow_until_stopped(run, create, *given, look_seconds=0.05)
    assert done.err == ""
    assert [(row["topic"], row["records"]) for row in done.json] == [("clicks", 4), ("late", 1)]


def test_a_followed_topic_that_fails_is_tried_again(
    run: Run, clicks: Topic, orders: Topic, backup: Path
) -> None:
    backups = pylogtable.open(backup)
    backups.create_topic("clicks")

    def make_room() -> None:
        wait_for(backup, "orders", 0)
        backups.delete_topic("clicks")
        wait_for(backup, "clicks", 4)

    given = ["clicks", "orders", backup, "--output", "json"]
    done = follow_until_stopped(run, make_room, *given, look_seconds=0.05)
    assert [(row["topic"], row["records"], row["error"]) for row in done.json] == [
        ("clicks", 4, None),
        ("orders", 0, None),
    ]
    errors = [json.loads(line) for line in done.err.splitlines()]
    assert len({error["message"] for error in errors}) == len(errors)
    assert "is no copy" in errors[0]["message"]


def test_progress_shows_records_speed_and_lag() -> None:
    one = MirrorProgress(records=3000, size_bytes=6_000_000, commits=2, seconds=1.5, lag={0: 0})
    assert progress_text([one], Speed()) == "3,000 records, 6.0 MB, 4.0 MB/s, lag none"
    two = MirrorProgress(records=1, size_bytes=0, commits=1, seconds=3, lag={0: 4, 1: 1230})
    assert (
        progress_text([one, two], Speed()) == "3,001 records, 6.0 MB, 2.0 MB/s, lag 1,234 offsets"
    )
