"""The codec of each column of a file."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pylogtable import Topic
from pylogtable.store import Store

pytestmark = pytest.mark.records_in("files")

ROWS = 10_000
SCHEMA = {"key": pa.string(), "measured": pa.float64(), "rounded": pa.float64(), "raw": pa.binary()}


def codecs(topic: Topic, count: int) -> dict[str, str]:
    rng = np.random.default_rng(7)
    rows = {
        "key": [f"key {n}" for n in range(count)],
        "measured": rng.random(count),
        "rounded": np.arange(count) / 4,
        "raw": [rng.bytes(20) for _ in range(count)],
    }
    topic.append(pa.table(rows, pa.schema(SCHEMA)))
    path = topic.segments()["path"][-1].as_py()
    metadata = pq.ParquetFile(pa.BufferReader(topic._store.read(path))).metadata
    columns = [metadata.row_group(0).column(n) for n in range(metadata.num_columns)]
    return {column.path_in_schema: column.compression for column in columns}


def test_columns_that_would_not_get_smaller_are_not_compressed(store: Store) -> None:
    topic = store.create_topic("t", 1, SCHEMA, "key")
    assert codecs(topic, ROWS) == {
        "offset": "ZSTD",
        "timestamp": "ZSTD",
        "key": "ZSTD",
        "rounded": "ZSTD",
        "measured": "UNCOMPRESSED",
        "raw": "UNCOMPRESSED",
    }
    assert topic.verify(data=True)


def test_a_few_records_are_compressed_without_a_look(store: Store) -> None:
    topic = store.create_topic("t", 1, SCHEMA, "key")
    assert set(codecs(topic, 100).values()) == {"ZSTD"}


@pytest.mark.parametrize(("chosen", "codec"), [("snappy", "SNAPPY"), ("zstd", "ZSTD")])
def test_a_codec_that_the_topic_names_is_used_for_every_column(
    store: Store, chosen: str, codec: str
) -> None:
    topic = store.create_topic("t", 1, SCHEMA, "key", {"compression.type": chosen})
    assert set(codecs(topic, ROWS).values()) == {codec}
