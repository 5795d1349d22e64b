"""All records of a key, beside a scan of the topic, delta-rs, and DuckDB over the table's files."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from statistics import median

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

import pylogtable
from benchmarks.result import Result

APPENDS, PARTITIONS, RECORDS_PER_KEY = 50, 6, 20
#: So many keys are looked up, one after the other; the median counts.
KEYS = 9


def run(records: int) -> list[Result]:
    """`records` of 100 bytes with random keys, in 50 appends: a key has about 20 of them."""
    chance = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        topic = pylogtable.open(folder).create_topic("t", PARTITIONS)
        table = f"{folder}/delta"
        for _ in range(APPENDS):
            rows = _rows(chance, records // APPENDS, records // RECORDS_PER_KEY)
            topic.append(rows)
            write_deltalake(table, rows, mode="append")
        wanted = rows["key"].combine_chunks().slice(0, KEYS).to_pylist()
        files = DeltaTable(table).file_uris()
        ours = _seconds(wanted, lambda key: topic.read(keys=[key]).read_all())
        scan = _seconds(wanted, lambda key: _scanned(topic, key))
        delta = _seconds(wanted, lambda key: _by_delta(table, key))
        duck = _seconds(wanted, lambda key: _by_duckdb(files, key))
        name = f"all records of a key of {records:,}"
        measured = f"{ours * 1e3:.0f} ms"
        return [
            Result(name, measured, f"{who} {seconds * 1e3:.0f} ms", seconds / ours, bar)
            for who, seconds, bar in (
                ("scan and filter", scan, 5),
                ("delta-rs", delta, 1),
                ("DuckDB over its files", duck, 0.5),
            )
        ]


def _rows(chance: np.random.Generator, count: int, keys: int) -> pa.Table:
    numbers = pa.array(chance.integers(0, keys, count))
    values = chance.integers(0, 256, (count, 80), dtype=np.uint8).tobytes()
    offsets = np.arange(0, 80 * count + 1, 80, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    value = pa.Array.from_buffers(pa.binary(), count, buffers)
    key = pc.binary_join_element_wise("customer-", pc.cast(numbers, pa.string()), "")
    return pa.table({"key": key.cast(pa.binary()), "value": value})


def _scanned(topic: pylogtable.Topic, key: bytes) -> pa.Table:
    reader = topic.read()
    found = [batch.filter(pc.equal(batch.column("key"), key)) for batch in reader]
    return pa.Table.from_batches(found, reader.schema)


def _by_delta(table: str, key: bytes) -> pa.Table:
    return DeltaTable(table).to_pyarrow_table(filters=[("key", "=", key)])


def _by_duckdb(files: list[str], key: bytes) -> pa.Table:
    query = "SELECT * FROM read_parquet($files) WHERE key = $key"
    return duckdb.sql(query, params={"files": files, "key": key}).to_arrow_table()


def _seconds(keys: list[bytes], look: Callable[[bytes], pa.Table]) -> float:
    """The median over the keys. All of them must be found."""
    took = []
    for key in [keys[0], *keys]:  # the first is warm-up
        began = time.perf_counter()
        found = look(key)
        took.append(time.perf_counter() - began)
        assert found.num_rows > 1
    return median(took[1:])
