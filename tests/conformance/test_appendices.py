"""Ties `format_spec/appendices.md` to what the library writes."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pylogtable.format import json_bytes
from pylogtable.format.schema import to_arrow
from tests.conformance.corpus import SPEC_FOLDER

TEXT = (SPEC_FOLDER / "appendices.md").read_text(encoding="utf-8")
TYPES = {
    name: cells
    for row in re.findall(r"^\| (`.+) \|$", TEXT, re.MULTILINE)
    for name, *cells in [[cell.strip() for cell in row.split(" | ")]]
}


def _parquet_schema(wire: str | dict[str, object]) -> pq.ParquetSchema:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.schema({"c": to_arrow(wire)}).empty_table(), sink)
    return pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema


def _physical(wire: str) -> str:
    name: str = _parquet_schema(wire).column(0).physical_type
    return name


@pytest.mark.parametrize("name", [name for name in TYPES if name != "`decimal(p,s)`"])
def test_a_plain_type_is_stored_as_the_table_says(name: str) -> None:
    arrow, parquet, *_ = TYPES[name]
    wire = name.strip("`")
    spelled = {"timestamp": "timestamp[us, tz=UTC]", "date": "date32[day]"}
    assert str(to_arrow(wire)) == spelled.get(wire, arrow)
    assert _physical(wire) == parquet.partition(",")[0]


def test_every_plain_type_has_a_row() -> None:
    spec = (SPEC_FOLDER / "spec.md").read_text(encoding="utf-8").partition("## 7. Types")[2]
    listed = spec.partition("The names are Spark's:")[2].partition(", array,")[0]
    named = set(re.findall(r"`(.+?)`", listed))
    assert {name.strip("`") for name in TYPES} == named


@pytest.mark.parametrize(("digits", "length"), [(9, 4), (10, 5), (18, 8), (38, 16)])
def test_a_decimal_takes_as_many_bytes_as_its_digits_need(digits: int, length: int) -> None:
    column = _parquet_schema(f"decimal({digits},2)").column(0)
    assert column.physical_type == "FIXED_LEN_BYTE_ARRAY"
    assert column.length == length
    assert f"{length} for p = {digits}" in TEXT


@pytest.mark.parametrize(
    ("wire", "paths"),
    [
        ({"type": "array", "elementType": "string"}, ["c.list.element"]),
        (
            {"type": "map", "keyType": "string", "valueType": "long"},
            ["c.key_value.key", "c.key_value.value"],
        ),
        ({"type": "struct", "fields": [{"name": "x", "type": "long"}]}, ["c.x"]),
    ],
)
def test_groups_inside_nested_types_have_their_fixed_names(
    wire: dict[str, object], paths: list[str]
) -> None:
    schema = _parquet_schema(wire)
    assert [schema.column(at).path for at in range(len(paths))] == paths


def test_the_example_of_a_checksum_is_right() -> None:
    found = re.search(r"object is `(\{.+\})`", TEXT)
    assert found is not None
    json_bytes.check_sum(found[1].encode())
    with pytest.raises(json_bytes.UndecodableError):
        json_bytes.check_sum(found[1].replace("operation", "Operation").encode())
