"""Commands over several topics, of which one cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pylogtable
from tests.builders import kafka
from tests.cli.conftest import Run


@pytest.fixture
def broken(store_dir: Path) -> pylogtable.Store:
    """Topics a and z with a group each, and an unreadable topic between them."""
    store = pylogtable.open(store_dir)
    for name in ("a", "m", "z"):
        topic = store.create_topic(name)
        topic.append(kafka(["x"]))
        topic.group("g").commit({0: 0})
    for commit in (store_dir / "m" / "_manifest").glob("*.json"):
        commit.write_text("{}")
    return store


def test_describe_shows_the_other_topics(run: Run, broken: pylogtable.Store) -> None:
    for arguments in ((), ("a", "m", "z")):
        shown = run("topics", "describe", *arguments)
        shown.failed("m: ", "breaks [")
        assert [line.split()[1] for line in shown.lines if line.startswith("Topic:")] == ["a", "z"]
    told = run("topics", "describe", "--output", "json")
    told.failed()
    assert [topic["name"] for topic in told.json] == ["a", "z"]
    error = json.loads(told.err)
    assert (error["error"], error["topic"]) == ("CorruptTopicError", "m")


def test_describe_shows_the_other_topics_if_one_is_missing(
    run: Run, clicks: pylogtable.Topic
) -> None:
    shown = run("topics", "describe", "clickz", "clicks")
    shown.failed("pylogtable: there is no topic 'clickz'", "did you mean 'clicks'?")
    assert shown.out.startswith("Topic: clicks")


def test_offsets_shows_the_other_topics(run: Run, broken: pylogtable.Store) -> None:
    shown = run("offsets")
    shown.failed("m: ")
    assert shown.lines == ["a:0:1", "z:0:1"]


def test_verify_shows_the_other_topics(run: Run, broken: pylogtable.Store) -> None:
    shown = run("verify")
    shown.failed("m: ")
    assert [line.split(":")[0] for line in shown.lines] == ["a", "z"]
    told = run("verify", "--output", "json").json
    assert [(topic["topic"], topic["sound"]) for topic in told] == [
        ("a", True),
        ("m", False),
        ("z", True),
    ]


def test_maintain_continues_with_the_other_topics(run: Run, broken: pylogtable.Store) -> None:
    done = run("maintain")
    done.failed("m: ")
    assert [line.split(":")[0] for line in done.lines] == ["a", "z"]


def test_groups_are_listed_and_described_in_the_other_topics(
    run: Run, broken: pylogtable.Store
) -> None:
    listed = run("groups", "list", "--output", "json")
    listed.failed('"topic": "m"')
    assert listed.json == [{"group": "g", "topics": ["a", "z"]}]
    described = run("groups", "describe", "g")
    described.failed("m: ")
    assert [line.split()[1] for line in described.lines[1:]] == ["a", "z"]


def test_groups_are_deleted_in_the_other_topics(run: Run, broken: pylogtable.Store) -> None:
    run("groups", "delete", "g", "--yes").failed("m: ")
    assert broken.groups() == {}


def test_reset_of_all_topics_changes_nothing(run: Run, broken: pylogtable.Store) -> None:
    """The group may have a position in the topic that cannot be read."""
    reset = ("groups", "reset", "g", "--to-latest", "--execute")
    run(*reset, "--all-topics").failed("topic 'm' cannot be read", "--topic")
    assert broken.topic("a").group("g").positions() == {0: 0}
    assert run(*reset, "--topic", "a").status == 0
    assert broken.topic("a").group("g").positions() == {0: 1}


def test_delete_of_several_topics_checks_all_first(run: Run, broken: pylogtable.Store) -> None:
    run("topics", "delete", "a", "m", "--yes").failed("breaks [")
    assert broken.topics() == ["a", "m", "z"]


def test_the_report_names_the_broken_topic(run: Run, broken: pylogtable.Store) -> None:
    page = run("report", "-o", "-").out
    assert page.startswith("<!DOCTYPE html>")
    assert "breaks [" in page
