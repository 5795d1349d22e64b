"""`pylogtable topics` and `offsets`."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest

import pylogtable
from tests.builders import T0, kafka, times
from tests.cli.conftest import Run


def test_create_list_describe_alter_delete(run: Run, store_dir: Path) -> None:
    made = run("topics", "create", "orders", "-p", 3, "--column", "id:long not null", "--column",
               "amount:double", "--key", "id", "-c", "cleanup.policy=compact")  # fmt: skip
    assert (made.status, made.out, made.err) == (0, "Created topic orders.\n", "")
    assert run("topics", "list").lines == ["orders"]
    shown = run("topics", "describe", "orders").out
    assert "PartitionCount: 3" in shown
    assert "Key: id" in shown
    assert "id: int64, amount: double" in shown
    assert "cleanup.policy=compact" in shown
    assert shown.splitlines()[-1].split() == ["2", "0", "0", "0", "0", "0", "B"]
    altered = run("topics", "alter", "orders", "-p", 6, "-c", "segment.bytes=1000", "--add-column",
                  "tags:" + '{"type": "array", "elementType": "string"}', "--widen-column",
                  "price:decimal(12,2)")  # fmt: skip
    altered.failed("no column 'price'")
    altered = run("topics", "alter", "orders", "-p", 6, "-c", "segment.bytes=1000")
    assert (altered.status, altered.out) == (0, "Altered topic orders, now version 1.\n")
    assert "existing records stay in their partitions" in altered.err
    assert run("topics", "alter", "orders", "--unset", "segment.bytes").status == 0
    both = run("topics", "alter", "orders", "--unset", "segment.bytes", "-c", "segment.bytes=9")
    both.failed("segment.bytes is set by --config and reset by --unset", status=2)
    config = pylogtable.open(store_dir).topic("orders").describe().config
    assert config["segment.bytes"] == str(2**30)
    gone = run("topics", "delete", "orders", "--yes")
    assert (gone.status, gone.out) == (0, "Deleted topic orders.\n")
    assert run("topics", "list").out == ""


def test_topic_commands_in_json(run: Run) -> None:
    made = run("topics", "create", "t", "--partitions", 2, "--output", "json").json
    assert (made["name"], made["created"], len(made["partitions"])) == ("t", True, 2)
    again = run("topics", "create", "t", "--if-not-exists", "--output", "json")
    assert (again.status, again.json["created"]) == (0, False)
    assert run("topics", "list", "--output", "json").json == ["t"]
    (described,) = run("--output", "json", "topics", "describe").json
    assert described["columns"][3] == {"name": "key", "type": "binary", "nullable": True}
    assert described["config"]["retention.ms"] == "604800000"
    altered = run("topics", "alter", "t", "-p", 3, "--output", "json")
    assert altered.err == ""
    assert len(altered.json["partitions"]) == 3
    deleted = run("topics", "delete", "t", "-y", "--output", "json").json
    assert deleted == {"dry_run": False, "deleted": ["t"]}


def test_delete_asks_for_confirmation(run: Run, clicks: pylogtable.Topic) -> None:
    run("topics", "delete", "clicks").failed("delete topic clicks (4 records, ", "--yes")
    looked = run("topics", "delete", "clicks", "--dry-run")
    assert looked.status == 0
    assert looked.out.startswith("Would delete topic clicks (4 records, ")
    assert clicks.count() == 4
    assert run("topics", "delete", "nope", "--yes", "--if-exists").status == 0
    run("topics", "delete", "clicks", "nope", "--yes").failed("no topic 'nope'")
    assert clicks.count() == 4


def test_columns_are_renamed_and_dropped(run: Run, store_dir: Path) -> None:
    run("topics", "create", "orders", "--column", "id:long", "--column", "note:string", "--column",
        "at:timestamp", "--column", "tags:string", "--key", "id")  # fmt: skip
    topic = pylogtable.open(store_dir).topic("orders")
    topic.append(pa.table({"id": [1], "note": ["n"], "tags": ["t"]}))
    done = run("topics", "alter", "orders", "--rename-column", "note=tags", "--rename-column",
               "tags = note")  # fmt: skip
    assert (done.status, done.out, done.err) == (0, "Altered topic orders, now version 2.\n", "")
    assert topic.read(columns=["note", "tags"]).read_all().to_pylist() == [
        {"note": "t", "tags": "n"}
    ]
    topic.alter(rename_columns={"at": "when"})
    row = run("produce", "orders", "--json", stdin='{"id": 2, "at": null}\n')
    row.failed("line 1", "no column 'at'; it was renamed to 'when'")
    topic.alter(rename_columns={"when": "at"})
    asked = run("topics", "alter", "orders", "--drop-column", "note", "--drop-column", "at")
    asked.failed("this would drop column(s) note, at of topic orders (1 record, ", "--yes")
    assert "--dry-run" not in asked.err
    assert topic.version == 4
    done = run("topics", "alter", "orders", "--drop-column", "note", "--add-column", "note:long",
               "--yes", "--output", "json")  # fmt: skip
    names = [column["name"] for column in done.json["columns"]]
    assert names == ["partition", "offset", "timestamp", "id", "tags", "at", "note"]
    run("topics", "alter", "orders", "--rename-column", "note").failed("not old=new", status=2)
    twice = run("topics", "alter", "orders", "--rename-column", "at=x", "--rename-column", "at=y")
    twice.failed("a column is renamed twice", status=2)
    run("topics", "alter", "orders", "--drop-column", "id", "-y").failed("belongs to the key")
    assert topic.version == 5


def test_mistakes_are_answered_with_a_hint(
    run: Run, clicks: pylogtable.Topic, store_dir: Path
) -> None:
    run("topics", "create", "clicks").failed("'clicks'", "already", "--if-not-exists")
    run("topics", "create", "x", "-c", "retention.m=1").failed("did you mean 'retention.ms'?")
    run("topics", "create", "x", "-c", "retention.ms").failed("name=value", status=2)
    run("topics", "create", "x", "--column", "id").failed("name:type", status=2)
    run("topics", "create", "x", "--column", "id:lang").failed("unknown column type 'lang'", "long")
    run("topics", "create", "x", "-p", "0").failed("partition")
    run("topics", "create", "x", "-p", "many").failed("'many'", status=2)
    run("topics", "describe", "click").failed("no topic 'click'", "did you mean 'clicks'?")
    run("topics", "describe", "zzz").failed("available: clicks")
    run("topics", "alter", "clicks").failed("no change is given", status=2)
    run("topics", "alter", "clicks", "-p", "1").failed("2", "1")
    run("topic", "list").failed("did you mean 'topics'?", status=2)
    run("topics", "lst").failed("did you mean 'list'?", status=2)
    run("topics").failed("create, list, describe", status=2)
    assert pylogtable.open(store_dir).topics() == ["clicks"]


def test_ways_to_name_the_store(
    run: Run, clicks: pylogtable.Topic, store_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an argument, by --store before or after the command, by the environment, and by the path
    of a topic."""
    monkeypatch.delenv("PYLOGTABLE_STORE")
    run("topics", "list").failed("no store is given", "PYLOGTABLE_STORE", status=2)
    assert run("topics", "list", store_dir).lines == ["clicks"]
    assert run("topics", "list", "--store", store_dir).lines == ["clicks"]
    assert run("-s", store_dir, "topics", "list").lines == ["clicks"]
    assert run("topics", "--store", store_dir, "list").lines == ["clicks"]
    assert run("offsets", f"{store_dir}/clicks").lines == ["clicks:0:3", "clicks:1:1"]
    assert run("offsets", f"file://{store_dir}/clicks").status == 0
    run("topics", "list", store_dir, "--store", store_dir).failed("given twice", status=2)
    run("offsets", f"{store_dir}/clicks", "-s", store_dir).failed("given twice", status=2)
    monkeypatch.chdir(store_dir)
    assert run("offsets", "./clicks").status == 0
    monkeypatch.chdir(store_dir.parent)
    assert run("offsets", "logs/clicks").status == 0
    monkeypatch.setenv("PYLOGTABLE_STORE", "/nowhere")
    assert run("topics", "list", store_dir).lines == ["clicks"]
    assert run("topics", "list", "-s", store_dir).lines == ["clicks"]


def test_a_name_with_a_slash_makes_no_topic_outside_of_the_store(
    run: Run, clicks: pylogtable.Topic, store_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = store_dir.parent / "work"
    outside.mkdir()
    monkeypatch.chdir(outside)
    for name in ("a/b", "team/clicks", "s3/clicks"):
        refused = run("topics", "create", name)
        refused.failed(
            "no name of a topic", str(store_dir), "PYLOGTABLE_STORE", f"./{name}", status=2
        )
        run("-s", store_dir, "topics", "create", name).failed("given twice", status=2)
        run("consume", name).failed("no name of a topic", status=2)
    assert list(outside.iterdir()) == []
    assert run("topics", "create", "./a/b").status == 0
    assert run("topics", "create", "../work/a/c").status == 0
    assert run("topics", "create", f"{outside}/a/d").status == 0
    assert run("topics", "create", f"file://{outside}/a/e").status == 0
    assert pylogtable.open(outside / "a").topics() == ["b", "c", "d", "e"]
    assert run("consume", f"{store_dir}/clicks").lines == ["a", "b", "c", "d"]


@pytest.mark.filterwarnings("always")
def test_an_existing_topic_is_accepted_and_what_differs_is_told(run: Run, store_dir: Path) -> None:
    ask = ("topics", "create", "t", "-p", 3, "-c", "retention.ms=5", "--if-not-exists")
    assert run(*ask).out == "Created topic t.\n"
    again = run(*ask)
    assert (again.status, again.out, again.err) == (0, "Topic t already exists.\n", "")
    other = run("topics", "create", "t", "-p", 4, "-c", "retention.ms=6", "--if-not-exists")
    assert (other.status, other.out) == (0, "Topic t already exists.\n")
    assert "3 partition(s) (asked: 4), retention.ms=5 (asked: 6)" in other.err
    assert "pylogtable topics alter TOPIC changes it" in other.err
    as_json = run(*ask, "--output", "json")
    assert (as_json.json["created"], as_json.err) == (False, "")


def test_a_missing_store_is_not_created(run: Run, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    run("topics", "list", nowhere).failed(f"there is no store at file://{nowhere}", "topics create")
    run("topics", "list", nowhere, "--output", "json").failed("there is no store at")
    (tmp_path / "empty").mkdir()
    listed = run("topics", "list", tmp_path / "empty")
    assert (listed.status, listed.out) == (0, "")
    assert listed.err == f"there is no topic in file://{tmp_path}/empty\n"
    assert run("topics", "list", "memory://new").status == 0
    run("topics", "describe", f"{nowhere}/orders").failed("check its address", "topics create")
    run("offsets", "-s", nowhere).failed(f"there is no topic in file://{nowhere}")
    run("topics", "list", "ftp://host/logs").failed("ftp: is not supported")
    assert not nowhere.exists()


def test_offsets(run: Run, store_dir: Path) -> None:
    topic = pylogtable.open(store_dir).create_topic("t", partitions=3)
    partition = pa.array([0, 0, 0, 1], pa.int32())
    stamps = times(10, 30, 20, 40)
    topic.append(kafka([None] * 4, partition=partition, timestamp=stamps))
    topic.append(kafka([None], partition=partition[:1], timestamp=times(30)))
    topic.delete_records({0: 1})
    for word in ((), ("--time", "latest"), ("--time", "-1")):
        assert run("offsets", "t", *word).lines == ["t:0:4", "t:1:1", "t:2:0"]
    for word in ("earliest", "-2"):
        assert run("offsets", "--time", word).lines == ["t:0:1", "t:1:0", "t:2:0"]
    for word in ("max-timestamp", "-3"):
        assert run("offsets", "t", "--time", word).lines == ["t:0:1", "t:1:0"]
    assert run("offsets", "t", "--time", T0 + 15).lines == ["t:0:1", "t:1:0"]
    assert run("offsets", "t", "--time", "2023-11-14T22:13:20.031Z").lines == ["t:1:0"]
    assert run("offsets", "t", "--partition", "1-2").lines == ["t:1:1", "t:2:0"]
    assert run("offsets", "t", "--time", "99999d").lines == ["t:0:1", "t:1:0"]
    late = run("offsets", "t", "--time", "2040-01-01", "--partition", "0", "--output", "json")
    assert late.json == [{"topic": "t", "partition": 0, "offset": None}]


def test_max_timestamp_ignores_deleted_records(run: Run, store_dir: Path) -> None:
    """The log start is in the middle of the segment with the latest timestamp."""
    topic = pylogtable.open(store_dir).create_topic("t")
    topic.append(kafka([None] * 3, timestamp=times(90, 20, 30)))
    topic.append(kafka([None] * 2, timestamp=times(40, 10)))
    topic.delete_records({0: 1})
    assert run("offsets", "t", "--time", "max-timestamp").lines == ["t:0:3"]


def test_wrong_times_are_refused(run: Run, clicks: pylogtable.Topic) -> None:
    for time in ("yesterday", "2024-13-01", "-4", "", "99999999999999999999"):
        run("offsets", "clicks", "--time", time).failed("--time", status=2)


def test_wrong_and_unknown_partitions_are_refused(run: Run, clicks: pylogtable.Topic) -> None:
    for partition in ("a", "1-0", "0,", "-1"):
        run("offsets", "clicks", "--partition", partition).failed("--partition", status=2)
    run("offsets", "clicks", "--partition", "7").failed("no partition 7", "0 to 1")


def test_a_description_has_the_same_columns_in_all_its_forms(
    run: Run, clicks: pylogtable.Topic
) -> None:
    """Arrow, HTML, text and JSON are made from the fields of a row."""
    fields = list(asdict(clicks.describe().partitions[0]))
    assert pylogtable.PARTITIONS_SCHEMA.names == fields
    assert clicks.at().partitions().column_names == fields
    (described,) = run("topics", "describe", "clicks", "--output", "json").json
    assert list(described["partitions"][0]) == fields
    html = re.findall("<th>(.*?)</th>", clicks.describe()._repr_html_())
    assert html == ["partition", "log start", "end offset", "segments", "records", "size"]
    shown = run("topics", "describe", "clicks").lines
    head, first, _ = (line.split() for line in shown[-3:])
    assert head == [name.upper().replace(" ", "-") for name in html]
    assert first[:5] == ["0", "0", "3", "1", "3"]
