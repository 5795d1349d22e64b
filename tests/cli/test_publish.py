"""`pylogtable publish` and `unpublish`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pylogtable
from pylogtable import Topic
from tests.builders import IN_FILES, kafka
from tests.cli.conftest import Run
from tests.publish.plain_iceberg import hide_pyiceberg, open_table


@pytest.fixture
def clicks(tmp_path: Path) -> Topic:
    topic = pylogtable.open(str(tmp_path)).create_topic("clicks", config=IN_FILES)
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
    assert "'csv'; the formats are delta, iceberg" in done.err


def test_iceberg_table_is_published_and_removed_beside_the_delta_table(
    run: Run, clicks: Topic, tmp_path: Path
) -> None:
    both = ("--format", "delta", "--format", "iceberg")
    done = run("publish", tmp_path / "clicks", *both, "--output", "json")
    assert (done.status, done.err) == (0, "")
    shown = [(table["format"], table["version"]) for table in done.json["tables"]]
    assert shown == [("delta", 1), ("iceberg", 1)]
    assert open_table(tmp_path / "clicks").scan().to_arrow().num_rows == 3
    removed = run("unpublish", tmp_path / "clicks", "--format", "iceberg", "--yes")
    assert removed.status == 0
    assert not list((tmp_path / "clicks" / "metadata").glob("*"))
    assert (tmp_path / "clicks" / "_delta_log" / f"{0:020d}.json").exists()


def test_maintain_publishes_both_formats_and_describe_shows_both(
    run: Run, clicks: Topic, tmp_path: Path
) -> None:
    place = tmp_path / "clicks"
    assert run("topics", "alter", place, "--config", "publish.formats=delta,iceberg").status == 0
    before = run("topics", "describe", place, "--output", "json").json[0]
    assert before["published"] == []
    done = run("maintain", tmp_path)
    assert (done.status, done.err) == (0, "")
    assert "delta version 0 shows version 2" in done.out
    assert "iceberg version 1 shows version 2" in done.out
    shown = run("topics", "describe", place).out
    assert "Published: delta: version 2, up to date\n" in shown
    assert "Published: iceberg: version 2, up to date\n" in shown
    assert open_table(place).scan().to_arrow().num_rows == 3
    clicks.append(kafka(list("de")))
    described = run("topics", "describe", place, "--output", "json").json[0]
    behind = [(status["format"], status["lag_records"]) for status in described["published"]]
    assert behind == [("delta", 2), ("iceberg", 2)]


def test_without_pyiceberg_the_command_says_what_to_install(
    run: Run, clicks: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_pyiceberg(monkeypatch)
    done = run("publish", tmp_path / "clicks", "--format", "iceberg")
    done.failed("pip install 'pylogtable[iceberg]'")
    assert run("publish", tmp_path / "clicks").status == 0  # Delta needs no other package


def test_unpublish_asks_first(run: Run, clicks: Topic, tmp_path: Path) -> None:
    clicks.publish()
    refused = run("unpublish", tmp_path / "clicks")
    assert refused.status != 0
    assert "--yes" in refused.err
    assert (tmp_path / "clicks" / "_delta_log").exists()
    done = run("unpublish", tmp_path / "clicks", "--yes")
    assert (done.status, done.out) == (0, "clicks: removed 2 files of published tables\n")
    assert not list((tmp_path / "clicks" / "_delta_log").glob("*"))


@pytest.mark.filterwarnings("always:.* is compacted, but")
def test_compacted_topic_gives_a_warning_but_not_in_each_run_of_maintain(
    run: Run, tmp_path: Path
) -> None:
    config = {"cleanup.policy": "compact", "publish.formats": "delta"}
    topic = pylogtable.open(str(tmp_path)).create_topic("users", config=config)
    topic.append(kafka(list("aab")))
    done = run("publish", tmp_path / "users", "--output", "json")
    assert "topic 'users' is compacted, but a published table" in json.loads(done.err)["warning"]
    assert done.json["tables"][0]["records_not_compacted"] == 3
    topic.compact(force=True)
    topic.append(kafka(list("a")))
    done = run("maintain", tmp_path)
    assert (done.status, done.err) == (0, "")
    assert "1 record not compacted (a key may have several rows)" in done.out
