"""What `consume --output json` writes, `produce` reads back to the same values."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pylogtable
from pylogtable.storage.local import LocalStore
from tests.builders import IN_FILES, kafka, replace_file, rows
from tests.cli.conftest import Run

NAN, INF = float("nan"), float("inf")
MAP, STRUCT = pa.map_, pa.struct
NOON = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)


def same(one: Any, other: Any) -> bool:
    """Equality for which NaN equals NaN."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


@pytest.mark.parametrize(
    ("kind", "values", "shown"),
    [
        (pa.float64(), [NAN, INF, -INF, 1.5, None], ["NaN", "Infinity", "-Infinity", 1.5, None]),
        (pa.float32(), [NAN, INF, -INF, 0.25], ["NaN", "Infinity", "-Infinity", 0.25]),
        (pa.list_(pa.float64()), [[NAN, 1.0], None], [["NaN", 1.0], None]),
        (MAP(pa.string(), pa.float64()), [[("a", -INF)]], [{"a": "-Infinity"}]),
        (STRUCT({"x": pa.float32()}), [{"x": INF}], [{"x": "Infinity"}]),
        (MAP(pa.float64(), pa.string()), [[(NAN, "a"), (1.5, "b")]], [{"NaN": "a", "1.5": "b"}]),
        (MAP(pa.int64(), pa.string()), [[(1, "a")]], [{"1": "a"}]),
        (MAP(pa.bool_(), pa.string()), [[(True, "a")]], [{"true": "a"}]),
        (MAP(pa.date32(), pa.string()), [[(date(2024, 5, 1), "a")]], [{"2024-05-01": "a"}]),
        (MAP(pa.binary(), pa.string()), [[(b"\xff", "a")]], [{"/w==": "a"}]),
        (pa.list_(pa.binary()), [[b"\xff", b"abc"]], [["/w==", "YWJj"]]),
        (STRUCT({"x": pa.binary()}), [{"x": b"abc"}], [{"x": "YWJj"}]),
        (pa.decimal128(38, 3), [Decimal("0.100")], ["0.100"]),
        (pa.timestamp("us", "UTC"), [NOON], ["2024-05-01T12:00:00Z"]),
        (pa.timestamp("us"), [NOON.replace(tzinfo=None)], ["2024-05-01T12:00:00"]),
    ],
    ids=str,
)
def test_columns_survive_a_round_trip(
    run: Run, store_dir: Path, kind: pa.DataType, values: list[Any], shown: list[Any]
) -> None:
    topic = pylogtable.open(store_dir).create_topic("t", 1, {"c": kind})
    topic.append(pa.table({"c": pa.array(values, kind)}))
    written = run("consume", "t", "--output", "json").out
    assert [json.loads(line)["c"] for line in written.splitlines()] == shown
    assert run("produce", "t", stdin=written).status == 0
    found = rows(topic.read(), "c")
    assert same(found, [*values, *values])


def test_numbers_that_would_change_are_refused(run: Run, store_dir: Path) -> None:
    schema = {"d": pa.float64(), "f": pa.float32()}
    topic = pylogtable.open(store_dir).create_topic("t", 1, schema)
    for wrong in ('{"d": "nan"}', '{"d": "1"}', '{"d": true}', '{"f": 1e300}', '{"d": {}}'):
        run("produce", "t", stdin=f"{{}}\n{wrong}\n").failed("line 2: column ")
    assert topic.count() == 0


def test_an_object_without_columns_is_a_record(run: Run, store_dir: Path) -> None:
    topic = pylogtable.open(store_dir).create_topic("t", 1, {"d": pa.float64()})
    assert run("produce", "t", stdin="{}\n").out == "t: 1 record in 1 commit; 0:[0,1)\n"
    assert rows(topic.read(), "d") == [None]


def test_each_line_is_one_object(run: Run, orders: pylogtable.Topic) -> None:
    run("produce", "orders", stdin='{"id": 1}\n{"id":\n2}\n').failed("line 2: ")
    run("produce", "orders", stdin='{"id": 1} {"id": 2}\n').failed("line 1: ")


def test_headers_that_are_not_utf_8_survive_a_round_trip(run: Run, store_dir: Path) -> None:
    topic = pylogtable.open(store_dir).create_topic("t")
    headers = [
        [{"key": "a", "value": b"\xff"}, {"key": "b", "value": b"x"}, {"key": "c", "value": None}]
    ]
    kind = topic.schema.field("headers").type
    topic.append(kafka(["k"]).append_column("headers", pa.array(headers, kind)))
    written = run("consume", "t", "--output", "json").out
    assert json.loads(written)["headers_base64"] == ["a", "/w==", "b", "eA==", "c", None]
    assert run("produce", "t", "--json", stdin=written).status == 0
    assert rows(topic.read(), "headers") == headers * 2
    run("produce", "t", "--json", stdin='{"headers": "ab"}\n').failed("line 1: headers are")


def test_times_outside_of_the_calendar_are_shown(run: Run, store_dir: Path) -> None:
    far = pa.array([2**62, None, 0], pa.int64())
    schema = {"at": pa.timestamp("us", "UTC"), "day": pa.date32()}
    topic = pylogtable.open(store_dir).create_topic("t", 1, schema)
    days = pa.array([10**7, None, 0], pa.int32()).cast(pa.date32())
    stamps = far.cast(pa.timestamp("us", "UTC"))
    topic.append(pa.table({"at": stamps, "day": days, "timestamp": stamps}))
    first, second, third = map(json.loads, run("consume", "t", "--output", "json").lines)
    assert (first["at"], first["day"]) == (f"@{2**62 // 1000}", f"@{10**7 * 86_400_000}")
    assert (second["at"], second["day"]) == (None, None)
    assert (third["at"], third["day"]) == ("1970-01-01T00:00:00Z", "1970-01-01")
    (segment,) = run("segments", "t", "--output", "json").json
    assert segment["max_timestamp"] == f"@{2**62 // 1000}"
    run("produce", "t", stdin=json.dumps({"at": first["at"]})).failed("after the year 9999")


@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.string())], ids=str)
def test_text_that_is_not_utf8_is_called_so(run: Run, store_dir: Path, kind: pa.DataType) -> None:
    """Another program may have written it."""
    topic = pylogtable.open(store_dir).create_topic("t", 1, {"c": kind}, config=IN_FILES)
    topic.append(pa.table({"c": pa.array(["a" if kind == pa.string() else ["a"]], kind)}))
    (path,) = rows(topic.segments(), "path")
    data = (store_dir / "t" / path).read_bytes()
    text = pa.array([b"\xff"]).view(pa.string())
    bad = text if kind == pa.string() else pa.ListArray.from_arrays(pa.array([0, 1], "int32"), text)
    table = pq.read_table(pa.BufferReader(data))
    sink = pa.BufferOutputStream()
    pq.write_table(table.set_column(2, table.schema.field(2), bad), sink)
    replace_file(LocalStore(store_dir), "t", path, sink.getvalue().to_pybytes())
    run("consume", "t").failed("column 'c' holds text that is not UTF-8")
