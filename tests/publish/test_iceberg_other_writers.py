"""Other engines change columns, properties and layout of a topic's Iceberg table, as a catalog of
the type `hadoop` lets them. The next publication takes the table back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pylogtable import Topic
from tests.publish.damage import publish
from tests.publish.plain_iceberg import check_rows, open_table

FORMATS = ["iceberg"]
Body = dict[str, Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "t"


def body_of(folder: Path, number: int) -> Body:
    read: Body = json.loads((folder / "metadata" / f"v{number}.metadata.json").read_text())
    return read


def write_after(folder: Path, number: int, change: Callable[[Body], None]) -> None:
    """Write the metadata file after this one, as another engine does that changes no snapshot."""
    body = body_of(folder, number)
    change(body)
    (folder / "metadata" / f"v{number + 1}.metadata.json").write_text(json.dumps(body))


def add_column(body: Body) -> None:
    """Take the id that the topic's next column gets."""
    new_id = body["last-column-id"] + 1
    column = {"id": new_id, "name": "theirs", "required": False, "type": "int"}
    schema = body["schemas"][-1]
    body["schemas"].append(schema | {"schema-id": 7, "fields": [*schema["fields"], column]})
    body |= {"current-schema-id": 7, "last-column-id": new_id}


def drop_column(body: Body) -> None:
    schema = body["schemas"][-1]
    body["schemas"].append(schema | {"schema-id": 7, "fields": schema["fields"][:-1]})
    body["current-schema-id"] = 7


@pytest.mark.parametrize("change", [add_column, drop_column])
def test_columns_are_those_of_the_topic_again(
    topic: Topic, folder: Path, change: Callable[[Body], None]
) -> None:
    publish(topic, FORMATS)
    write_after(folder, 1, change)
    topic.alter(add_columns={"ours": pa.string()})
    topic.append(pa.table({"k": ["c"], "v": [1], "ours": ["x"]}))
    topic.publish(FORMATS)
    check_rows(topic, folder)
    old = open_table(folder).snapshots()[0]
    assert open_table(folder).scan(snapshot_id=old.snapshot_id).to_arrow().num_rows == 2


def test_properties_that_protect_the_files_are_set_again_and_others_stay(
    topic: Topic, folder: Path
) -> None:
    publish(topic, FORMATS)

    def change(body: Body) -> None:
        del body["properties"]["gc.enabled"]
        body["properties"]["read.split.target-size"] = "1000"

    write_after(folder, 1, change)
    publish(topic, FORMATS)
    properties = open_table(folder).properties
    assert properties["gc.enabled"] == "false"
    assert properties["read.split.target-size"] == "1000"


def test_layout_is_as_we_write_it_again(topic: Topic, folder: Path) -> None:
    publish(topic, FORMATS)
    ours = body_of(folder, 1)

    def change(body: Body) -> None:
        bucket = {"source-id": 16, "field-id": 1001, "transform": "bucket[4]", "name": "b"}
        spec = {"spec-id": 1, "fields": [*body["partition-specs"][0]["fields"], bucket]}
        body["partition-specs"].append(spec)
        body |= {"default-spec-id": 1, "last-partition-id": 1001}
        body |= {"format-version": 3, "next-row-id": 0, "statistics": [{"snapshot-id": 1}]}

    write_after(folder, 1, change)
    publish(topic, FORMATS)
    theirs = body_of(folder, 3)
    for name in ("format-version", "partition-specs", "default-spec-id", "last-partition-id"):
        assert theirs[name] == ours[name], name
    assert theirs.keys() == ours.keys()
    check_rows(topic, folder)


def test_verify_tells_a_snapshot_of_another_writer(topic: Topic, folder: Path) -> None:
    publish(topic, FORMATS)

    def change(body: Body) -> None:
        del body["snapshots"][0]["summary"]["pylogtable.state"]

    write_after(folder, 1, change)
    (problem,) = topic.verify().problems
    assert problem.rule == "PUB-5"
    assert "another writer" in problem.detail
    assert "topic.unpublish(['iceberg'])" in problem.detail
    topic.unpublish(FORMATS)
    assert topic.verify()
