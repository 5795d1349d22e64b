"""Runs `format_spec/vectors/partitioner.json`."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pylogtable import errors
from pylogtable.format.partitioner import key_bytes, murmur2, partition_for

_PATH = Path(__file__).parents[2] / "format_spec" / "vectors" / "partitioner.json"
VECTORS: list[dict[str, Any]] = json.loads(_PATH.read_text(encoding="utf-8"))

_TYPES = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "float": pa.float32(),
    "double": pa.float64(),
}


def _column(column: dict[str, Any]) -> pa.Array:
    name, values = column["type"], column["values"]
    if decimal := re.fullmatch(r"decimal\((\d+),(\d+)\)", name):
        kind = pa.decimal128(int(decimal[1]), int(decimal[2]))
        return pa.array([None if v is None else Decimal(v) for v in values], kind)
    if name == "binary":
        values = [None if v is None else bytes.fromhex(v) for v in values]
    return pa.array(values, _TYPES[name])


def test_the_corpus_is_complete() -> None:
    assert len(VECTORS) >= 30
    assert len({vector["name"] for vector in VECTORS}) == len(VECTORS)
    cited = {rule for vector in VECTORS for rule in vector["rules"]}
    assert cited == {f"PART-{n}" for n in range(1, 6)}
    for vector in VECTORS:
        assert ("expected" in vector) != ("error" in vector), vector["name"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_library_follows_the_vector(vector: dict[str, Any]) -> None:
    columns = [_column(column) for column in vector["input"]["columns"]]
    if "error" in vector:
        with pytest.raises(getattr(errors, vector["error"])):
            key_bytes(columns)
        return
    expected = vector["expected"]
    keys = key_bytes(columns)
    keys.validate(full=True)
    assert [None if k is None else k.hex() for k in keys.to_pylist()] == expected["key_bytes"]

    hashes = murmur2(keys).view(np.int32).tolist()
    hashed = [h if key.is_valid else None for h, key in zip(hashes, keys, strict=True)]
    assert hashed == expected["murmur2"]

    assert list(expected["partition"]) == [str(n) for n in vector["input"]["partitions"]]
    for partitions, wanted in expected["partition"].items():
        got = partition_for(keys, int(partitions)).tolist()
        assert got == [-1 if p is None else p for p in wanted]
