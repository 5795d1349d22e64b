"""Values at the edge: zero, empty, and too large."""

from __future__ import annotations

from pathlib import Path

import pytest

import pylogtable
from tests.builders import kafka
from tests.cli.conftest import Run


@pytest.fixture
def group(clicks: pylogtable.Topic) -> pylogtable.Group:
    """A group at {0: 2, 1: 1} of clicks."""
    group = clicks.group("g")
    group.commit({0: 2, 1: 1})
    return group


@pytest.mark.parametrize(
    ("target", "expected"), [(("--to-offset", 0), {0: 0, 1: 0}), (("--shift-by", 0), {0: 2, 1: 1})]
)
def test_reset_takes_zero(
    run: Run,
    clicks: pylogtable.Topic,
    group: pylogtable.Group,
    target: tuple[str, int],
    expected: dict[int, int],
) -> None:
    done = run("groups", "reset", "g", "--topic", "clicks", *target, "--execute")
    assert (done.status, done.err) == (0, "")
    assert clicks.group("g").positions() == expected


def test_zero_and_another_target_are_two_targets(run: Run, group: pylogtable.Group) -> None:
    reset = ("groups", "reset", "g", "--topic", "clicks", "--to-offset", 0)
    run(*reset, "--to-latest").failed("give exactly one target", status=2)


def test_limit_of_zero_shows_nothing(run: Run, clicks: pylogtable.Topic) -> None:
    assert run("consume", "clicks", "--count", 0).out == ""
    assert run("history", "clicks", "--limit", 0, "--output", "json").json == []
    assert run("segments", "clicks", "--limit", 0, "--output", "json").json == []
    assert len(run("segments", "clicks", "--version", 0, "--output", "json").json) == 0


@pytest.mark.parametrize("arguments", [("topics", "list", ""), ("topics", "list", "--store", "")])
def test_an_empty_store_option_does_not_use_the_environment(
    run: Run, clicks: pylogtable.Topic, arguments: tuple[str, ...]
) -> None:
    """As in `--store "$UNSET"`: the command would go to another store."""
    run(*arguments).failed("the store given is empty", status=2)


@pytest.mark.parametrize("duration", ["999999d", "999999999d", "P999999D", "999999999999999ms"])
def test_a_duration_longer_than_the_calendar_is_accepted(
    run: Run, clicks: pylogtable.Topic, group: pylogtable.Group, duration: str
) -> None:
    kept = run("vacuum", "clicks", "--keep", duration, "--yes")
    assert (kept.status, kept.err) == (0, "")
    assert kept.out.startswith("clicks: removed 0 files")
    reset = ("groups", "reset", "g", "--topic", "clicks", "--execute")
    assert run(*reset, "--by-duration", duration).status == 0
    assert clicks.group("g").positions() == {0: 0, 1: 0}


@pytest.mark.parametrize("duration", ["99999999999999d", "P99999999999999D", "1y", "-1d", "", "0"])
def test_wrong_durations_are_refused(
    run: Run, clicks: pylogtable.Topic, group: pylogtable.Group, duration: str
) -> None:
    run("vacuum", "clicks", f"--keep={duration}").failed("--keep", status=2)
    reset = ("groups", "reset", "g", "--topic", "clicks", f"--by-duration={duration}")
    run(*reset).failed("--by-duration", status=2)


def test_a_wrong_duration_is_answered_with_both_ways_to_write_one(
    run: Run, clicks: pylogtable.Topic
) -> None:
    run("vacuum", "clicks", "--keep", "a week").failed("'a week'", "7d", "P1DT12H", status=2)


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("0001-01-01", {0: 0, 1: 0}),
        ("0001-01-01T00:00:00+14:00", {0: 0, 1: 0}),
        ("9999-12-31T23:59:59-14:00", {0: 3, 1: 1}),
        ("253402300799999", {0: 3, 1: 1}),
    ],
)
def test_times_at_the_ends_of_the_calendar(
    run: Run,
    clicks: pylogtable.Topic,
    group: pylogtable.Group,
    when: str,
    expected: dict[int, int],
) -> None:
    reset = ("groups", "reset", "g", "--topic", "clicks", "--execute")
    assert run(*reset, "--to-datetime", when).status == 0
    assert clicks.group("g").positions() == expected
    assert run("offsets", "clicks", "--time", when).status == 0


def test_times_beyond_the_calendar_are_refused(run: Run, clicks: pylogtable.Topic) -> None:
    late = "253402300800000"
    run("offsets", "clicks", "--time", late).failed("after the year 9999", status=2)
    reset = ("groups", "reset", "g", "--topic", "clicks", "--to-datetime", late)
    run(*reset).failed("after the year 9999", status=2)


HUGE = 10**30


@pytest.mark.parametrize(
    "command",
    [
        ("consume", "clicks", "--count", HUGE),
        ("history", "clicks", "--limit", HUGE),
        ("segments", "clicks", "--limit", HUGE),
        ("offsets", "clicks", "--partition", f"0-{HUGE}"),
        ("produce", "clicks", "--partition", HUGE),
        ("produce", "clicks", "--linger", "nan"),
    ],
    ids=lambda command: " ".join(map(str, command[:3])),
)
def test_numbers_that_are_too_large_are_wrong_usage(
    run: Run, clicks: pylogtable.Topic, command: tuple[object, ...]
) -> None:
    run(*command, stdin="x\n").failed(str(command[-2]), status=2)


def test_a_linger_of_centuries_waits_for_the_end_of_the_input(
    run: Run, clicks: pylogtable.Topic
) -> None:
    assert run("produce", "clicks", "--linger", 1e12, stdin="x\n").status == 0
    assert clicks.count() == 5


@pytest.mark.parametrize(
    ("columns", "config", "wrong", "problem"),
    [
        (["id:long not null", "n:long"], [], '{"n": 1}', "column 'id' must not be null"),
        (["id:long", "n:long"], [], '{"id": 1, "partition": 7}', "partition 7 is out of range"),
        (["id:long", "n:long"], ["-c", "cleanup.policy=compact"], '{"n": 1}', "a compacted topic "),
    ],
)
def test_rows_that_the_topic_refuses_are_named_by_their_line(
    run: Run, columns: list[str], config: list[str], wrong: str, problem: str
) -> None:
    """Lines count from 1, and blank lines count."""
    options = [word for column in columns for word in ("--column", column)]
    assert run("topics", "create", "t", *options, "--key", "id", *config).status == 0
    ran = run("produce", "t", stdin=f'{{"id": 1}}\n\n{{"id": 2}}\n{wrong}\n')
    ran.failed(f"line 4: {problem}", "; no line is appended")
    assert " row " not in ran.err


def test_text_lines_that_the_topic_refuses_are_named(run: Run, store_dir: Path) -> None:
    topic = pylogtable.open(store_dir).create_topic("t", config={"cleanup.policy": "compact"})
    run("produce", "t", stdin="a\nb\n").failed("line 1: a compacted topic ", "without a key")
    topic.append(kafka(["k"]))
    assert topic.count() == 1
