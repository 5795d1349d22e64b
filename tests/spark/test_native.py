"""`LogTable.to_df`: the same rows and columns as `format("pylogtable")`, by Spark's own reader.

A fallback to Python warns, and here a warning is an error. So equal rows were read natively.
"""

from __future__ import annotations

import json
import re
from contextlib import redirect_stdout
from datetime import date, datetime, timezone
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

import pylogtable
from pylogtable import OffsetOutOfRangeError, SegmentGoneError, Store, Topic
from pylogtable.engine import plan_append
from pyspark_pylogtable import LogTable
from pyspark_pylogtable.columns import spark_schema
from pyspark_pylogtable.table import native
from tests.builders import (
    IN_FILES,
    T0,
    Clock,
    at,
    kafka,
    limited,
    make_holes,
    rows,
    topic_of_older_writer,
)
from tests.conftest import S3_BUCKET, S3_KEY, S3_SECRET
from tests.spark.support import failure, load, without_spark

INT, LONG, TEXT = pa.int32(), pa.int64(), pa.string()


def people(count: int, seed: int = 0, at_ms: int = 0) -> pa.Table:
    """Keyed rows, one millisecond apart."""
    times = [at(at_ms + number) for number in range(count)]
    return pa.table(
        {
            "k": [f"u{(number + seed) % 53}" for number in range(count)],
            "v": pa.array(range(count), INT),
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
        }
    )


def stage_thrice(topic: Topic, table: pa.Table) -> None:
    """One commit of three stagings: all but the first segment of each partition are shifted."""
    plan_append(topic).commit(
        [plan_append(topic).stage(table.slice(part, table.num_rows - 2)) for part in range(3)]
    )


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return pylogtable.open(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Topic:
    """Version 1 is sealed, 2 adds shifted segments, 4 segments of the other timestamp type, and 5
    deletes the offsets below 20 in partition 0. Versions are one second apart."""
    clock = Clock()
    store = pylogtable.open(tmp_path_factory.mktemp("mixed"), clock=clock)
    topic = store.create_topic("mixed", 3, {"k": TEXT, "v": INT}, key="k", config=IN_FILES)
    clock.tick(1000)
    topic.append(people(200))
    clock.tick(1000)
    stage_thrice(topic, people(100, 7, at_ms=200))
    clock.tick(1000)
    topic.alter(config={"message.timestamp.type": "LogAppendTime"})
    clock.tick(1000)
    stage_thrice(topic, people(60, 13))
    clock.tick(1000)
    topic.delete_records({0: 20})
    assert [topic.segments(v)["shift"].to_pylist().count(0) for v in (1, 2, 4)] == [3, 6, 9]
    assert min(topic.end_offsets().values()) > 130
    return topic


def check_same(df: DataFrame, expected: pa.Table) -> None:
    """Assert that a DataFrame has these rows, and these columns as nullable."""
    assert df.schema == spark_schema(expected.schema)
    found = df.toArrow().cast(expected.schema)
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))


def natively(spark: SparkSession, topic: Topic, **arguments: Any) -> DataFrame:
    return LogTable(spark, topic.url, topic).to_df(**arguments)


def is_same(spark: SparkSession, topic: Topic) -> int:
    """Compare the whole topic, and return its number of rows."""
    expected = without_spark(topic.url)
    check_same(natively(spark, topic), expected)
    return int(expected.num_rows)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sealed": ({"version": 1}, {"versionAsOf": 1}),
    "shifted": ({"version": 2}, {"versionAsOf": 2}),
    "cut by the log start": ({}, {}),
    "version by time": ({"version": at(2500)}, {"timestampAsOf": T0 + 2500}),
    "empty version": ({"version": 0}, {"versionAsOf": 0}),
    "words": (
        {"start": "earliest", "end": "latest"},
        {"startingOffsets": "earliest", "endingOffsets": "latest"},
    ),
    "cut by offsets": (
        {"start": 30, "end": 125},
        {"startingOffsets": '{"*":30}', "endingOffsets": '{"*":125}'},
    ),
    "cut by offsets of some": (
        {"start": {0: 60, 2: 50}, "end": {1: 110}},
        {"startingOffsets": '{"0":60,"2":50,"*":-2}', "endingOffsets": '{"1":110,"*":-1}'},
    ),
    "cut by times": (
        {"start": at(150), "end": at(230)},
        {"startingTimestamp": T0 + 150, "endingTimestamp": T0 + 230},
    ),
    "nothing": (
        {"start": 50, "end": 50},
        {"startingOffsets": '{"*":50}', "endingOffsets": '{"*":50}'},
    ),
    "one partition": ({"partitions": 1}, {"assign": '{"mixed":[1]}'}),
    "two partitions": (
        {"partitions": [2, 0], "start": 25},
        {"assign": '{"mixed":[0,2]}', "startingOffsets": '{"mixed":{"0":25,"2":25}}'},
    ),
    "columns": (
        {"columns": ["timestampType", "v", "offset", "topic", "partition"]},
        {"columns": "timestampType,v,offset,topic,partition"},
    ),
    "columns of a cut without offset": (
        {"columns": ["v", "timestampType"], "start": 30, "end": 125},
        {"columns": "v,timestampType", "startingOffsets": '{"*":30}', "endingOffsets": '{"*":125}'},
    ),
    "columns of nothing": (
        {"columns": ["topic", "offset", "timestampType"], "version": 0},
        {"columns": "topic,offset,timestampType", "versionAsOf": 0},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_to_df_equals_the_format(spark: SparkSession, mixed: Topic, case: str) -> None:
    arguments, options = CASES[case]
    path = mixed.url.removesuffix("/mixed") if "assign" in options else mixed.url
    if "assign" in options:  # a read that can see several topics has a topic column
        options = {**options, "columns": json.dumps(mixed.schema.names)}
    expected = without_spark(path, **options)
    assert (expected.num_rows == 0) == (case in {"nothing", "empty version", "columns of nothing"})
    check_same(natively(spark, mixed, **arguments), expected)


def test_to_df_equals_the_format_and_the_library(spark: SparkSession, mixed: Topic) -> None:
    columns = ["topic", *mixed.schema.names, "timestampType"]
    df = natively(spark, mixed, columns=columns)
    by_format = load(spark, mixed.url, columns=json.dumps(columns))
    assert_df_equality(df, by_format, ignore_row_order=True)
    check_same(df, mixed.read(columns=columns).read_all())
    assert {row.timestampType for row in df.select("timestampType").collect()} == {0, 1}


@pytest.mark.parametrize("columns", [None, ["v", "timestampType"]])
@pytest.mark.parametrize("case", ["cut by offsets", "cut by offsets of some", "cut by times"])
def test_cut_segments_have_scans_of_their_own_if_they_are_large(
    spark: SparkSession,
    mixed: Topic,
    case: str,
    columns: list[str] | None,
) -> None:
    arguments, options = CASES[case]
    asked = {"columns": json.dumps(columns)} if columns else {}
    expected = without_spark(mixed.url, **options, **asked)
    check_same(natively(spark, mixed, **arguments, columns=columns), expected)
    eager = limited(mixed, needless_bytes=0)
    check_same(natively(spark, eager, **arguments, columns=columns), expected)


def test_more_cuts_than_a_filter_may_have_ranges(spark: SparkSession, shared: Store) -> None:
    partitions = native.MAX_RANGES + 2
    topic = shared.create_topic("wide", partitions, {"v": INT})
    count = 3 * partitions
    table = pa.table({"v": pa.array(range(10 * count), INT)})
    spread = table.append_column("partition", pa.array([*range(partitions)] * 30, INT))
    plan_append(topic).commit([plan_append(topic).stage(spread) for _ in range(2)])
    starts = {number: 1 + 3 * number for number in range(partitions)}
    ends = {number: start + 1 for number, start in starts.items()}
    named = {"startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(ends)}
    expected = without_spark(topic.url, **named)
    assert expected.num_rows == partitions
    check_same(natively(spark, topic, start=starts, end=ends), expected)


def test_a_range_is_one_scan_of_the_files_that_have_it(spark: SparkSession, shared: Store) -> None:
    """Of 18 sealed files in 6 partitions, 6 have these offsets; and the filter reaches them."""
    topic = shared.create_topic("ranged", 6, {"v": INT}, config=IN_FILES)
    table = pa.table({"v": pa.array(range(600), INT)})
    spread = table.append_column("partition", pa.array([*range(6)] * 100, INT))
    for _ in range(3):
        topic.append(spread)
    df = natively(spark, topic, start=120, end=130)
    assert len(df.inputFiles()) == 6
    (pushed,) = entry(plan := plan_of(df), "PushedFilters")
    assert "GreaterThanOrEqual(offset,120), LessThan(offset,130)" in pushed
    assert len(entry(plan, "ReadSchema")) == 1
    assert "file_name" not in plan
    assert df.count() == 60
    # Other bounds for each partition: still one scan, and Parquet knows where nothing is.
    starts = {number: 105 + 15 * number for number in range(6)}
    ends = {number: start + 5 for number, start in starts.items()}
    df = natively(spark, topic, start=starts, end=ends)
    (pushed,) = entry(plan_of(df), "PushedFilters")
    assert "GreaterThanOrEqual(offset,105),LessThan(offset,110)" in pushed
    assert len(df.inputFiles()) == 6
    assert df.count() == 30


def test_a_range_in_the_middle_of_pages(spark: SparkSession, shared: Store) -> None:
    """Spark skips pages by the index of a file, and pages of lists and texts end elsewhere."""
    columns = {"k": "bigint", "tags": "array<string>", "text": "string"}
    topic = limited(shared, page_rows=50).create_topic("pages", 1, columns, config=IN_FILES)
    tags = [None if n % 7 == 0 else [str(n)] * (n % 5) for n in range(400)]
    texts = [None if n % 11 == 0 else "x" * (n % 90) for n in range(400)]
    stage_thrice(topic, pa.table({"k": range(400), "tags": tags, "text": texts}))
    path = topic.files()["path"][0].as_py()
    assert pq.read_metadata(path).row_group(0).column(0).has_offset_index
    for start, end in ((120, 131), (349, 760), (390, 401)):
        df = LogTable.for_path(spark, topic.url).to_df(start=start, end=end)
        wanted = topic.read(start=start, end=end).read_all()
        assert df.orderBy("offset").toArrow().to_pylist() == wanted.to_pylist()


def test_planning_asks_the_jvm_seldom(
    spark: SparkSession, shared: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call takes half a millisecond and more. Bounds of four files once took 380 of them."""
    topic = shared.create_topic("calls", 4, {"k": TEXT, "v": INT}, key="k", config=IN_FILES)
    topic.append(people(400))
    ends = {number: end - number - 1 for number, end in topic.end_offsets().items()}
    table = LogTable.for_path(spark, topic.url)
    client = type(spark._jvm._gateway_client)
    send, sent = client.send_command, []

    def counted(self: Any, command: str, *how: Any, **more: Any) -> Any:
        sent.append(command)
        return send(self, command, *how, **more)

    monkeypatch.setattr(client, "send_command", counted)
    df = table.to_df(start=dict.fromkeys(ends, 1), end=ends)
    monkeypatch.undo()
    assert len(sent) < 150
    assert df.count() == sum(ends.values()) - len(ends)


def test_a_range_of_shifted_files_leaves_the_others_out(spark: SparkSession, shared: Store) -> None:
    topic = shared.create_topic("ranged-shifted", 1, {"v": INT}, config=IN_FILES)
    stage_values = [pa.table({"v": pa.array(range(10), INT)})] * 4
    plan_append(topic).commit([plan_append(topic).stage(values) for values in stage_values])
    assert topic.segments()["shift"].to_pylist() == [0, 10, 20, 30]
    df = natively(spark, topic, start=25, end=38)
    assert len(df.inputFiles()) == 2
    (pushed,) = entry(plan_of(df), "PushedFilters")
    assert "LessThan(offset,10)" in pushed
    assert sorted(row.offset for row in df.collect()) == [*range(25, 38)]


def test_unknown_offsets_are_refused_as_by_the_library(spark: SparkSession, mixed: Topic) -> None:
    table = LogTable.for_path(spark, mixed.url)
    with pytest.raises(OffsetOutOfRangeError):
        table.to_df(start=10)
    with pytest.raises(pylogtable.InvalidRequestError, match="no column 'nope'"):
        table.to_df(columns=["nope"])
    with pytest.raises(pylogtable.InvalidRequestError, match="no version 99"):
        table.to_df(version=99)


def test_kafka_shaped_topic_columns(spark: SparkSession, shared: Store) -> None:
    topic = shared.create_topic("kafka", 2)
    topic.append(kafka(["a", "b", None, "c"], [None, "1", "2", "3"]))
    stage_thrice(topic, kafka(["a", "b", "c"]))
    df = natively(spark, topic)
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert df.columns == names
    check_same(df, without_spark(topic.url))
    with_headers = [*names, "headers"]
    check_same(
        natively(spark, topic, columns=with_headers),
        without_spark(topic.url, includeHeaders=True),
    )


def test_columns_that_were_added_and_widened(spark: SparkSession, shared: Store) -> None:
    """Filters work on files that have the column with its old type, or do not have it."""
    old = {
        "b": pa.int8(),
        "s": pa.int16(),
        "i": INT,
        "f": pa.float32(),
        "d": pa.decimal128(8, 2),
        "e": pa.decimal128(12, 2),
        "g": pa.decimal128(20, 4),
    }
    topic = shared.create_topic("widened", 2, old)
    numbers = range(-5, 15)
    table = pa.Table.from_pylist(
        [
            {
                "b": n,
                "s": -n,
                "i": n * 1000,
                "f": n / 4,
                "d": Decimal(n) / 4,
                "e": Decimal(-n) / 4,
                "g": Decimal(n) / 8,
            }
            for n in numbers
        ],
        schema=pa.schema(old),
    )
    topic.append(table)
    before = natively(spark, topic)
    topic.alter(
        widen_columns={
            "b": LONG,
            "s": INT,
            "i": LONG,
            "f": pa.float64(),
            "d": pa.decimal128(12, 4),
            "e": pa.decimal128(22, 3),
            "g": pa.decimal128(38, 6),
        },
        add_columns={"new": TEXT, "list": pa.list_(INT)},
    )
    stage_thrice(topic, table.append_column("new", pa.array(["x"] * table.num_rows)))
    df = natively(spark, topic)
    check_same(df, without_spark(topic.url))
    check_same(before, without_spark(topic.url, versionAsOf=1))
    everything = without_spark(topic.url).to_pylist()
    for condition, holds in [
        ("b > 3", lambda row: row["b"] > 3),
        ("i = 2000 OR i = 4611686018427387904", lambda row: row["i"] == 2000),
        ("f < -0.5", lambda row: row["f"] < -0.5),
        ("d >= 3.25", lambda row: row["d"] >= Decimal("3.25")),
        ("e <= -3.25", lambda row: row["e"] <= Decimal("-3.25")),
        ("g > 1", lambda row: row["g"] > 1),
        ("new IS NULL AND s > 0", lambda row: row["new"] is None and row["s"] > 0),
    ]:
        expected = sorted((r["partition"], r["offset"]) for r in everything if holds(r))
        found = df.where(condition).select("partition", "offset").collect()
        assert sorted(map(tuple, found)) == expected != []


TYPES = pa.schema(
    [
        ("id", LONG),
        ("flag", pa.bool_()),
        ("b", pa.int8()),
        ("h", pa.int16()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("bin", pa.binary()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("ntz", pa.timestamp("us")),
        ("dec", pa.decimal128(20, 4)),
        ("list", pa.list_(pa.field("element", TEXT))),
        ("map", pa.map_(TEXT, LONG)),
        ("deep", pa.struct([("x.y", INT), ("day", pa.date32())])),
    ]
)
FULL = {
    "id": 1,
    "flag": True,
    "b": -128,
    "h": 32767,
    "f": 0.5,
    "d": 1e300,
    "bin": b"\x00\xff",
    # Before the Gregorian calendar, where Parquet writers differ.
    "day": date(1492, 1, 2),
    "ts": datetime(1500, 1, 1, 5, 30, 0, 123456, tzinfo=timezone.utc),
    "ntz": datetime(1492, 3, 10, 2, 30, 0, 1),
    "dec": Decimal("-1234567890123456.7891"),
    "list": ["a", None, ""],
    "map": [("k", 1), ("l", None)],
    "deep": {"x.y": 7, "day": date(1969, 7, 20)},
}


@pytest.fixture(scope="module", params=[0, 16384], ids=["in files", "in commits"])
def typed(shared: Store, request: pytest.FixtureRequest) -> Topic:
    config = {"inline.max.bytes": request.param}
    topic = shared.create_topic(f"typed-{request.param}", 1, TYPES, key="id", config=config)
    table = pa.Table.from_pylist(
        [FULL, {"id": 2}, {**FULL, "id": 3, "list": [], "map": []}], schema=TYPES
    )
    plan_append(topic).commit([plan_append(topic).stage(table) for _ in range(2)])
    return topic


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {
            "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
            "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
            "spark.sql.parquet.enableVectorizedReader": "false",
        },
        {"spark.sql.sources.useV1SourceList": ""},
    ],
    ids=["as it comes", "row by row", "v2"],
)
def test_every_type_with_any_session_settings(
    spark: SparkSession, typed: Topic, settings: dict[str, str]
) -> None:
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        assert is_same(spark, typed) == 6
    finally:
        for name, old in before.items():
            spark.conf.set(name, old) if old is not None else spark.conf.unset(name)


def test_session_settings_are_restored(spark: SparkSession, typed: Topic) -> None:
    name = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    before = spark.conf.get(name)
    natively(spark, typed)
    assert spark.conf.get(name) == before


def test_unusual_column_names(spark: SparkSession, shared: Store) -> None:
    odd = ["a.b", "c d", "t`i", "UPPER", "x,;{}()=", "ü", "<script>"]
    topic = shared.create_topic("odd", 2, dict.fromkeys(odd, INT), key="a.b")
    stage_thrice(topic, pa.table({name: pa.array(range(5), INT) for name in odd}))
    assert is_same(spark, topic) == 9
    check_same(
        natively(spark, topic, columns=["t`i", "a.b"]),
        without_spark(topic.url, columns='["t`i","a.b"]'),
    )


@pytest.mark.parametrize("names", [["a", "A"], ["Offset"], ["_metadata"]])
def test_ambiguous_column_names_fall_back_to_python(
    spark: SparkSession, logs: Store, names: list[str]
) -> None:
    topic = topic_of_older_writer(logs, "t", dict.fromkeys(names, INT), 2)
    table = LogTable.for_path(spark, topic.url)
    assert table.to_df().collect() == []
    topic.append(pa.table({name: pa.array(range(9), INT) for name in names}))
    why = "Spark reserves" if names == ["_metadata"] else "differ in case only"
    with pytest.warns(UserWarning, match=why) as warned:
        df = table.to_df(end={0: 5}, partitions=0)
    assert warned[0].filename == __file__
    expected = topic.read(end=5, partition=0).read_all()
    assert expected.num_rows == 5
    check_same(df, expected)
    with pytest.warns(UserWarning, match=why):
        check_same(table.to_df(columns=[names[-1]]), topic.read(columns=[names[-1]]).read_all())


@pytest.mark.parametrize("name", ["sp ace per%20cent% ha#sh", "br[a]{b,c}*?/partition=9"])
def test_unusual_directory_names(spark: SparkSession, tmp_path: Path, name: str) -> None:
    topic = pylogtable.open(tmp_path / name).create_topic("q", 1, {"v": INT})
    stage_thrice(topic, pa.table({"v": pa.array(range(4), INT)}))
    assert is_same(spark, topic) == 6


def test_a_relative_path(
    spark: SparkSession, logs: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's processes have another working directory."""
    logs.create_topic("t", 1, {"a": INT}).append(pa.table({"a": pa.array([1, 2], INT)}))
    colliding = topic_of_older_writer(logs, "u", {"a": INT, "A": INT})
    colliding.append(pa.table({"a": pa.array([1, 2], INT)}))
    monkeypatch.chdir(tmp_path)
    assert LogTable.for_path(spark, "logs/t").to_df().count() == 2
    with pytest.warns(UserWarning, match="differ in case only"):
        df = LogTable.for_path(spark, Path("logs/u")).to_df()
    assert df.count() == 2


def test_segments_with_holes(spark: SparkSession, logs: Store) -> None:
    topic = logs.create_topic("t", 1, {"v": INT})
    topic.append(pa.table({"v": pa.array(range(40), INT)}))
    make_holes(topic, range(3, 40, 7))
    assert is_same(spark, topic) == 6
    found = natively(spark, topic, start=4, end=31).select("v").collect()
    assert sorted(row.v for row in found) == [10, 17, 24]


# --- Spark's plans ---------------------------------------------------------------------------


def plan_of(df: DataFrame) -> str:
    with redirect_stdout(StringIO()) as shown:
        df.explain("formatted")
    return shown.getvalue()


def entry(plan: str, name: str) -> list[str]:
    """The value under this name in the plan, for each scan."""
    return re.findall(rf"^{name}: (.*)$", plan, re.MULTILINE)


def test_filters_and_columns_reach_the_files_of_a_sealed_topic(
    spark: SparkSession, mixed: Topic
) -> None:
    df = natively(spark, mixed, version=1)
    asked = df.where("partition = 1 AND offset BETWEEN 10 AND 19 AND v > 5 AND k = 'u1'")
    plan = plan_of(asked.select("v"))
    (pushed,) = entry(plan, "PushedFilters")
    for one in ("GreaterThanOrEqual(offset,10)", "LessThanOrEqual(offset,19)", "GreaterThan(v,5)"):
        assert one in pushed
    assert "EqualTo(k,u1)" in pushed
    (partitions,) = entry(plan, "PartitionFilters")
    assert re.search(r"partition#\d+ = 1", partitions)
    assert entry(plan, "ReadSchema") == ["struct<offset:bigint,k:string,v:int>"]
    assert entry(plan_of(df.select("v")), "ReadSchema") == ["struct<v:int>"]
    assert entry(plan_of(df.groupBy().count()), "ReadSchema") == ["struct<>"]
    expected = [r for r in rows(mixed.read(1, 10, 20, version=1)) if r["v"] > 5 and r["k"] == "u1"]
    assert sorted(r.v for r in asked.collect()) == [r["v"] for r in expected]


def test_bounds_apply_only_to_the_file_that_they_cut(spark: SparkSession, mixed: Topic) -> None:
    plan = plan_of(natively(spark, mixed, partitions=1, start=10, version=2, columns=["v"]))
    assert "Union" in plan
    pushed = entry(plan, "PushedFilters")
    assert len(pushed) == 1
    assert "GreaterThanOrEqual(offset,10)" in pushed[0]
    # Without the column offset a shift costs nothing and no file is looked up.
    assert "struct<v:int>" in entry(plan, "ReadSchema")
    assert "file_name" not in plan


def test_only_files_of_the_snapshot_are_read(spark: SparkSession, logs: Store) -> None:
    topic = logs.create_topic("t", 1, {"v": INT}, config=IN_FILES)
    topic.append(pa.table({"v": pa.array(range(4), INT)}))
    (path,) = topic.segments()["path"].to_pylist()
    folder = Path(topic.url.removeprefix("file://"))
    orphan = folder / "partition=0" / f"{0:020d}-orphan.parquet"
    orphan.write_bytes((folder / path).read_bytes())
    table = LogTable.for_path(spark, topic.url)
    df = table.to_df()
    topic.append(pa.table({"v": pa.array([100], INT)}))
    assert sorted(row.v for row in df.collect()) == [0, 1, 2, 3]
    assert table.to_df().count() == 5
    assert table.to_df(version=1).count() == 4


def test_removed_file_is_an_error(spark: SparkSession, logs: Store) -> None:
    topic = logs.create_topic("t", 1, {"v": INT}, config=IN_FILES)
    topic.append(pa.table({"v": pa.array(range(4), INT)}))
    table = LogTable.for_path(spark, topic.url)
    df = table.to_df()
    (path,) = topic.segments()["path"].to_pylist()
    Path(topic.url.removeprefix("file://"), path).unlink()
    with pytest.raises(Exception, match=r"FILE_NOT_EXIST|PATH_NOT_FOUND"):  # not all are PySpark's
        df.collect()
    with pytest.raises(SegmentGoneError, match=r"topic\.verify\(\) lists what is missing"):
        table.to_df()


@pytest.mark.parametrize("start", [None, 5])
def test_replaced_file_is_an_error_instead_of_fewer_rows(
    spark: SparkSession, logs: Store, start: int | None
) -> None:
    topic = logs.create_topic("t", 1, {"v": INT}, config=IN_FILES)
    stage_thrice(topic, pa.table({"v": pa.array(range(6), INT)}))
    assert natively(spark, topic, start=start).count() == 12 - (start or 0)
    path, size = topic.segments().select(["path", "size_bytes"]).to_pylist()[2].values()
    file = Path(topic.url.removeprefix("file://"), path)
    table = pq.read_table(file, partitioning=None)
    for length in range(1, 100):
        pq.write_table(table.replace_schema_metadata({"x": "y" * length}), file)
        if (file.stat().st_size - size) % 3:
            break
    df = natively(spark, topic, start=start)
    assert "a file of the snapshot was replaced" in failure(df.collect)


# --- stores ----------------------------------------------------------------------------------


def test_memory_store_is_refused(spark: SparkSession) -> None:
    pylogtable.open("memory://for-spark").create_topic("t")
    with pytest.raises(pylogtable.InvalidRequestError, match="memory of this process"):
        LogTable.for_path(spark, "memory://for-spark/t")


def test_unknown_url_scheme_falls_back_to_python(spark: SparkSession, s3_endpoint: str) -> None:
    options = {
        "key": S3_KEY,
        "secret": S3_SECRET,
        "endpoint_url": s3_endpoint,
        "client_kwargs": {"region_name": "us-east-1"},
    }
    store = pylogtable.open(f"s3://{S3_BUCKET}/native", storage_options=options)
    topic = store.create_topic("t", 2, {"k": TEXT, "v": INT}, key="k", config=IN_FILES)
    stage_thrice(topic, people(20))
    table = LogTable.for_path(spark, f"s3a://{S3_BUCKET}/native/t", options)
    with pytest.warns(UserWarning, match="Spark cannot read the files") as warned:
        df = table.to_df(start=3, columns=["v", "offset", "partition"])
    said = str(warned[0].message)
    assert f"s3a://{S3_BUCKET}/native/t: " in said
    assert f"s3://{S3_BUCKET}/native/t: " in said
    assert "S3AFileSystem" in said or "FileSystem" in said
    assert S3_SECRET not in said
    expected = topic.read(start=3, columns=["v", "offset", "partition"]).read_all()
    assert expected.num_rows > 20
    check_same(df, expected)
    # Metadata needs no data file.
    assert table.offsets().count() == 2
    result = table.append(spark.createDataFrame([("u1", 1)], "k string, v int"))
    assert (result.records, topic.count()) == (1, 55)
