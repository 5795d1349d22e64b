"""Golden topics as Iceberg tables: files with and without field ids, every layout of the log."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

import pylogtable
from pylogtable import Topic
from pylogtable.errors import InvalidRequestError
from tests.conformance.corpus import TOPICS, golden_cases
from tests.publish.plain_iceberg import expected_rows, open_table, rows

#: Its decimal column was widened to another scale, which Iceberg does not have.
OTHER_SCALE = "table-shaped"
CASES = [case for case in golden_cases() if not case.startswith("corrupt-") and case != OTHER_SCALE]


#: Issue 24915 of polars. The last one for Python 3.10 is 2.0.
POLARS_NEEDS_IDS = tuple(map(int, polars.__version__.split(".")[:2])) < (2, 1)


def copy_of(case: str, folder: Path) -> Topic:
    shutil.copytree(TOPICS / case / "topic", folder)
    return pylogtable.open_topic(str(folder))


def as_pyiceberg_reads(schema: pa.Schema, expected: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """pyiceberg reads a null list of structs as an empty one: iceberg-python issue 3833."""
    lists = {
        field.name
        for field in schema
        if pa.types.is_list(field.type) and pa.types.is_struct(field.type.value_type)
    }
    return [
        {name: [] if value is None and name in lists else value for name, value in row.items()}
        for row in expected
    ]


def have_ids(table: Table) -> bool:
    files = [task.file.file_path for task in table.scan().plan_files()]
    fields = [field for file in files for field in pq.read_schema(file.removeprefix("file://"))]
    return all(b"PARQUET:field_id" in (field.metadata or {}) for field in fields)


@pytest.mark.parametrize("case", CASES)
def test_golden_topic_reads_the_same_as_a_table(case: str, tmp_path: Path) -> None:
    topic = copy_of(case, tmp_path / "t")
    topic.publish(["iceberg"])
    schema, expected = expected_rows(topic, topic.version)
    found = open_table(tmp_path / "t").scan().to_arrow()
    assert rows(found, schema) == as_pyiceberg_reads(schema, expected)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:Iceberg scan planning")
def test_polars_reads_a_golden_topic_as_it_is(case: str, tmp_path: Path) -> None:
    topic = copy_of(case, tmp_path / "t")
    topic.publish(["iceberg"])
    schema, expected = expected_rows(topic, topic.version)
    table = open_table(tmp_path / "t")
    if POLARS_NEEDS_IDS and not have_ids(table):
        pytest.skip("this polars reads no Iceberg files without field ids")
    found = polars.scan_iceberg(table.metadata_location).collect().to_arrow()
    assert rows(found, schema) == expected


def test_files_without_ids_follow_renamed_and_dropped_columns_by_their_stored_names(
    tmp_path: Path,
) -> None:
    topic = copy_of(OTHER_SCALE, tmp_path / "t")
    topic.alter(drop_columns=["price"])
    topic.alter(rename_columns={"note": "remark"})
    topic.alter(add_columns={"note": pa.int64()})
    topic.publish(["iceberg"])
    schema, expected = expected_rows(topic, topic.version)
    found = open_table(tmp_path / "t").scan().to_arrow()
    assert any(row["remark"] is not None for row in expected)
    assert rows(found, schema) == as_pyiceberg_reads(schema, expected)


def test_decimal_column_that_was_widened_to_another_scale_is_refused(tmp_path: Path) -> None:
    topic = copy_of(OTHER_SCALE, tmp_path / "t")
    with pytest.raises(InvalidRequestError, match=r"'price' is decimal\(12, 3\).*decimal\(9, 2\)"):
        topic.publish(["iceberg"])
    assert not (tmp_path / "t" / "metadata").exists()
