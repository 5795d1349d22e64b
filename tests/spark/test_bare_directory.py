"""After merge and vacuum a topic's directory is a plain Parquet table. Other readers see
the same rows with the same offsets."""

from __future__ import annotations

from datetime import timezone
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

import pylogtable
from pylogtable import Topic
from pylogtable.engine import plan_append
from tests.builders import IN_FILES, kafka, rows, times, until_all_is_past

COLUMNS = ("partition", "offset", "key", "value", "timestamp")
COMPACT = {"cleanup.policy": "compact"}
KEEP = {"retention.ms": -1}


def shifted(topic: Topic) -> None:
    """Shifted segments: their files store other offsets than their records have."""
    keys = [f"k{n}" for n in range(20)]
    topic.append(kafka(keys, timestamp=times(*range(20))))
    staged = [
        plan_append(topic).stage(
            kafka(keys, [f"{n}-{k}" for k in keys], timestamp=times(*range(20)))
        )
        for n in "xyz"
    ]
    plan_append(topic).commit(staged)
    assert any(topic.segments()["shift"].to_pylist())


def files(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.glob("partition=*/*"))


def with_duckdb(place: Path) -> list[tuple[Any, ...]]:
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    source = f"read_parquet('{place}/partition=*/*.parquet', hive_partitioning = true)"
    with duckdb.connect() as db:
        found = db.sql(f"SELECT {names} FROM {source}").to_arrow_table()
    return sorted(rows(found, *COLUMNS))


def with_spark(spark: SparkSession, place: Path) -> list[tuple[Any, ...]]:
    """Times without a zone, as a session in UTC returns them."""
    found = spark.read.parquet(str(place)).select(*COLUMNS).collect()
    return sorted(
        (p, o, bytes(k), None if v is None else bytes(v), t.replace(tzinfo=timezone.utc))
        for p, o, k, v, t in found
    )


@pytest.mark.parametrize("kind", ["merged", "compacted", "cut"])
def test_other_parquet_readers_read_the_bare_directory(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    store = pylogtable.open(tmp_path)
    topic = store.create_topic("t", 3, config=IN_FILES | (COMPACT if kind == "compacted" else KEEP))
    shifted(topic)
    place = tmp_path / "t"
    expected = rows(topic.read(), *COLUMNS)
    if kind == "merged":
        # Before the merge other readers see wrong offsets.
        assert with_duckdb(place) != expected
    if kind == "compacted":
        topic.append(kafka(["k3", "k4"], [None, "new"], timestamp=times(1, 2)))
        topic.compact()
        expected = rows(topic.read(), *COLUMNS)
        assert len(expected) == 20
    if kind == "cut":
        # Log starts inside segments: until a merge only the manifest knows them.
        topic.merge()
        starts = {number: end + 2 for number, end in topic.end_offsets().items()}
        topic.append(kafka([f"k{n}" for n in range(60)], timestamp=times(*range(60))))
        topic.alter(config={"segment.bytes": 1000})
        topic.delete_records(starts)
        expected = rows(topic.read(), *COLUMNS)
        assert {offset for _, offset, *_ in expected}.isdisjoint(range(min(starts.values())))
        assert with_duckdb(place) != expected
    topic.merge()
    until_all_is_past(topic)
    topic.vacuum(dry_run=False, retention_ms=0, force=True)
    assert rows(topic.read(), *COLUMNS) == expected
    assert files(place) == sorted(topic.segments()["path"].to_pylist())
    assert with_duckdb(place) == expected
    assert with_spark(spark, place) == expected
    assert topic.verify(data=True)
