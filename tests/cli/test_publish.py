"""`pylogtable publish` and `unpublish`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pylogtable
from pylogtable import Topic
from tests.builders import kafka
from tests.cli.conftest import Run


@pytest.fixture
def clicks(tmp_path: Path) -> Topic:
    topic = pylogtable.open(str(tmp_path)).create_topic("clicks")
    topic.append(kafka(list("abc")))
    return topic


def test_publish_says_what_the_table_shows(run: Run, clicks: Topic, tmp_path: Path) -> None:
    done = run("publish", tmp_path / "clicks")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("clicks: delta version 0 shows version 1 of the topic: 1 files")
    assert (tmp_path / "clicks" / "_delta_log" / f"{0:020d}.json").exists()


def test_publish_gives_json(run: Run, clicks: Topic, tmp_path: Path) -> None:
    clicks.alter(config={"publish.formats": "delta"})
    done = run("publish", tmp_path / "clicks", "--format", "delta", "--output", "json")
    report = json.loads(done.out)
    assert report["topic"] == "clicks"
    (table,) = report["tables"]
    assert (table["format"], table["version"], table["files_added"]) == ("delta", 2, 1)
    described = json.loads(run("topics", "describe", tmp_path / "clicks", "--output", "json").out)
    assert described[0]["published"][0]["lag_records"] == 0
    shown = run("topics", "describe", tmp_path / "clicks").out
    assert "Published: delta: version 2, up to date" in shown


def test_unknown_format_is_refused(run: Run, clicks: Topic, tmp_path: Path) -> None:
    done = run("publish", tmp_path / "clicks", "--format", "csv")
    assert done.status == 1
    assert "'csv'; the formats are delta" in done.err


def test_unpublish_asks_first(run: Run, clicks: Topic, tmp_path: Path) -> None:
    clicks.publish()
    refused = run("unpublish", tmp_path / "clicks")
    assert refused.status != 0
    assert "--yes" in refused.err
    assert (tmp_path / "clicks" / "_delta_log").exists()
    done = run("unpublish", tmp_path / "clicks", "--yes")
    assert (done.status, done.out) == (0, "clicks: removed 2 files of published tables\n")
    assert not list((tmp_path / "clicks" / "_delta_log").glob("*"))
