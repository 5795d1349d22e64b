"""`pylogtable groups`, with the reset cases of kafka-consumer-groups."""

from __future__ import annotations

from pathlib import Path

import pytest

import pylogtable
from tests.builders import kafka
from tests.cli.conftest import Result, Run


@pytest.fixture
def two(clicks: pylogtable.Topic, store_dir: Path) -> pylogtable.Store:
    """Group g in two topics: clicks at {0: 1}, views at {0: 2}."""
    store = pylogtable.open(store_dir)
    views = store.create_topic("views")
    views.append(kafka(["a", "b", "c"]))
    clicks.group("g").commit({0: 1}, metadata="m")
    views.group("g").commit({0: 2})
    return store


def positions(store: pylogtable.Store) -> dict[str, dict[int, int]]:
    return {name: store.topic(name).group("g").positions() for name in ("clicks", "views")}


def test_list_and_describe(run: Run, two: pylogtable.Store, store_dir: Path) -> None:
    assert run("groups", "list").lines == run("groups", "list", store_dir).lines == ["g"]
    assert run("groups", "list", "--output", "json").json == [
        {"group": "g", "topics": ["clicks", "views"]}
    ]
    described = run("groups", "describe", "g")
    assert "no position" in described.err
    head, *lines = (line.split() for line in described.lines)
    assert head[:6] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert [line[:6] for line in lines] == [
        ["g", "clicks", "0", "1", "3", "2"],
        ["g", "clicks", "1", "-", "1", "1"],
        ["g", "views", "0", "2", "3", "1"],
    ]
    rows = run("groups", "describe", "--topic", "clicks", "--output", "json").json
    assert [(row["current_offset"], row["lag"]) for row in rows] == [(1, 2), (None, 1)]
    assert "no position" not in run("groups", "describe", "g", "--topic", "views").err
    assert rows[0]["metadata"] == "m"
    assert rows[0]["committed_at"].endswith("+00:00")
    run("groups", "describe", "gg").failed("no group 'gg'", "did you mean 'g'?")


def test_unknown_groups_are_refused(run: Run, clicks: pylogtable.Topic) -> None:
    listed = run("groups", "list")
    assert (listed.status, listed.out) == (0, "")
    assert "there is no consumer group" in listed.err
    run("groups", "describe", "x").failed("none exist yet")
    run("groups", "reset", "x", "--all-topics", "--to-latest").failed("name a topic")


def moved(ran: Result) -> list[list[str]]:
    assert ran.status == 0, ran
    return [line.split()[1:] for line in ran.lines[1:]]


def test_reset_changes_nothing_without_execute(run: Run, two: pylogtable.Store) -> None:
    before = positions(two)
    for words in ((), ("--dry-run",)):
        shown = run("groups", "reset", "g", "--topic", "clicks", "--to-latest", *words)
        assert moved(shown) == [["clicks", "0", "1", "3"], ["clicks", "1", "-", "1"]]
        assert "add --execute" in shown.err
    assert positions(two) == before
    done = run("groups", "reset", "g", "--topic", "clicks", "--to-latest", "--execute")
    assert moved(done) == [["clicks", "0", "1", "3"], ["clicks", "1", "-", "1"]]
    assert done.err == ""
    assert positions(two) == {"clicks": {0: 3, 1: 1}, "views": {0: 2}}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--topic", "clicks:0", "--to-earliest"], {"clicks": {0: 0}, "views": {0: 2}}),
        (["--topic", "clicks:1", "--to-current"], {"clicks": {0: 1, 1: 1}, "views": {0: 2}}),
        (["--topic", "clicks:0", "--topic", "views", "--to-offset", "1"],
         {"clicks": {0: 1}, "views": {0: 1}}),
        (["--topic", "clicks:0", "--shift-by", "-1"], {"clicks": {0: 0}, "views": {0: 2}}),
        (["--all-topics", "--to-datetime", "2000-01-01T00:00:00.000"],
         {"clicks": {0: 0, 1: 0}, "views": {0: 0}}),
        (["--topic", "views", "--by-duration", "P1DT2H"], {"clicks": {0: 1}, "views": {0: 0}}),
    ],
)  # fmt: skip
def test_reset_targets(
    run: Run, two: pylogtable.Store, options: list[str], expected: dict[str, dict[int, int]]
) -> None:
    done = run("groups", "reset", "g", *options, "--execute", "--output", "json")
    assert done.status == 0
    assert not any(row["dry_run"] for row in done.json)
    assert positions(two) == expected


def test_reset_outside_of_the_log_goes_to_its_start_or_end(run: Run, two: pylogtable.Store) -> None:
    done = run("groups", "reset", "g", "--topic", "clicks:0", "--to-offset", 99, "--execute")
    assert moved(done) == [["clicks", "0", "1", "3"]]
    assert "clicks, partition 0: 99 is outside of [0, 3]" in done.err
    late = run("groups", "reset", "g", "--topic", "views", "--to-datetime", "2100-01-01")
    assert moved(late) == [["views", "0", "2", "3"]]
    assert "no record at or after" in late.err


def test_export_and_import(run: Run, two: pylogtable.Store, tmp_path: Path) -> None:
    exported = run("groups", "reset", "g", "--all-topics", "--to-current", "--export")
    assert exported.lines == ["clicks,0,1", "clicks,1,1", "views,0,2"]
    file = tmp_path / "positions.csv"
    file.write_text("clicks,0,2\ng,views,0,1\n")
    assert moved(run("groups", "reset", "g", "--from-file", file, "--execute")) == [
        ["clicks", "0", "1", "2"],
        ["views", "0", "2", "1"],
    ]
    assert positions(two) == {"clicks": {0: 2}, "views": {0: 1}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "clicks,0",
        "clicks,zero,1",
        "clicks,0,-1",
        "h,clicks,0,1",
        "clicks,0,1\nclicks,0,2",
        "\udcff",
    ],
)
def test_reset_refuses_a_wrong_file(
    run: Run, two: pylogtable.Store, tmp_path: Path, text: str
) -> None:
    before = positions(two)
    (tmp_path / "f.csv").write_text(text, errors="surrogateescape")
    run("groups", "reset", "g", "--from-file", tmp_path / "f.csv", "--execute").failed("f.csv")
    assert positions(two) == before


def test_reset_changes_no_topic_if_one_is_wrong(run: Run, two: pylogtable.Store) -> None:
    before = positions(two)
    reset = ("groups", "reset", "g", "--execute")
    run(*reset, "--topic", "views", "--topic", "clicks", "--shift-by", 1).failed("partition 1")
    run(*reset, "--topic", "views", "--topic", "clickz", "--to-latest").failed("'clicks'?")
    run(*reset, "--topic", "views:0", "--topic", "clicks:7", "--to-latest").failed("partition 7")
    assert positions(two) == before


def test_reset_needs_one_target_and_one_scope(run: Run, two: pylogtable.Store) -> None:
    reset = ("groups", "reset", "g")
    run(*reset, "--all-topics").failed("--to-earliest", "--from-file", status=2)
    run(*reset, "--all-topics", "--to-latest", "--shift-by", 1).failed(
        "exactly one target", status=2
    )
    run(*reset, "--to-latest").failed("--all-topics", status=2)
    run(*reset, "--to-latest", "--all-topics", "--topic", "views").failed("--topic", status=2)
    run(*reset, "--from-file", "x", "--topic", "views").failed("leave out --topic", status=2)
    run(*reset, "--from-file", "/no/such/file").failed("/no/such/file")
    run(*reset, "--all-topics", "--by-duration", "1 year").failed("--by-duration", status=2)
    run(*reset, "--all-topics", "--to-datetime", "soon").failed("--to-datetime", status=2)
    run(*reset, "--topic", "views", "--topic", "views", "--to-latest").failed("twice", status=2)
    run(*reset, "--all-topics", "--to-latest", "--execute", "--dry-run").failed(status=2)
    run("groups", "reset", "no/group", "--topic", "views", "--to-latest").failed("no/group")


def test_delete(run: Run, two: pylogtable.Store) -> None:
    run("groups", "delete", "g").failed("delete group g in topic clicks", "--yes")
    looked = run("groups", "delete", "g", "--topic", "views", "--dry-run")
    assert looked.lines == ["Would delete group g in topic views."]
    assert two.groups() == {"g": ["clicks", "views"]}
    run("groups", "delete", "g", "--topic", "nope", "--yes").failed("clicks, views")
    assert run("groups", "delete", "g", "--topic", "views", "--yes").status == 0
    assert two.groups() == {"g": ["clicks"]}
    gone = run("groups", "delete", "g", "--yes", "--output", "json").json
    assert gone == {"dry_run": False, "deleted": [{"group": "g", "topic": "clicks"}]}
    assert two.groups() == {}
    run("groups", "delete", "g", "--yes").failed("no group 'g'")


def test_remove_member(run: Run, two: pylogtable.Store) -> None:
    consumers = {name: two.topic(name).consumer("g", "worker") for name in ("clicks", "views")}
    for consumer in consumers.values():
        consumer.poll()
    ids = {name: str(consumer.member) for name, consumer in consumers.items()}
    command = ("groups", "remove-member", "g")
    run(*command, "worker").failed(f"remove member {ids['clicks']} in topic clicks", "--yes")
    looked = run(*command, "worker", "--topic", "views", "--dry-run")
    assert looked.lines == [f"Would remove member {ids['views']} of group g in topic views."]
    run(*command, "nobody", "--yes").failed("no member 'nobody'", ids["views"])
    run("groups", "remove-member", "h", "worker", "--yes").failed("no group 'h'")
    done = run(*command, ids["clicks"], "--yes")
    assert done.lines == [f"Removed member {ids['clicks']} of group g in topic clicks."]
    assert done.err == "a member that is alive joins again: stop it to keep it out\n"
    gone = run(*command, "worker", "--yes", "--output", "json").json
    assert gone == {
        "dry_run": False,
        "removed": [{"group": "g", "topic": "views", "member": ids["views"]}],
    }
    assert positions(two) == {"clicks": {0: 1}, "views": {0: 2}}
    run("groups", "reset", "g", "--all-topics", "--to-earliest", "--execute")
