"""Columns that rows have and the topic lacks are added by `AppendPlan.merge_columns`."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from pylogtable import InvalidRequestError, SchemaMismatchError
from pylogtable.engine import plan_append
from pylogtable.storage.base import Created
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import make_store, rows

SCHEMA = {"id": pa.int64(), "item": pa.string()}


def given(**columns: pa.DataType) -> pa.Schema:
    return pa.schema({**SCHEMA, **columns})


def test_missing_columns_are_added_as_nullable_ones_in_one_commit(store: Store) -> None:
    topic = store.create_topic("t", schema=SCHEMA, key="id")
    topic.append(pa.table({"id": [1], "item": ["tea"]}))
    new = pa.schema(
        [*given(partition=pa.int32()), pa.field("n", pa.int32(), nullable=False)]
    ).append(pa.field("tags", pa.list_(pa.string())))
    plan_append(topic).merge_columns(new)
    assert topic.version == 2
    plan_append(topic).merge_columns(new)
    assert topic.version == 2
    topic.append(pa.table({"id": [2], "item": ["jam"], "n": ints(7), "tags": [["a"]]}))
    found = sorted(rows(topic.read(), "id", "item", "n", "tags"))
    assert found == [(1, "tea", None, None), (2, "jam", 7, ["a"])]


def ints(*numbers: int) -> pa.Array:
    return pa.array(numbers, pa.int32())


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (given(Item=pa.string()), "'Item' differs only in case from 'item'"),
        (given(Offset=pa.int64()), "'Offset' differs only in case from 'offset'"),
        (given(n=pa.int64(), offset=pa.int64()), "'offset' is given by the log"),
        (given(n=pa.int64(), item=pa.int64()), "column 'item' is bigint"),
        (given(n=pa.time64("us")), "column 'n'"),
        (given(n=pa.null()), "column 'n'"),
    ],
)
def test_rows_that_could_not_be_appended_change_nothing(
    store: Store, columns: pa.Schema, message: str
) -> None:
    topic = store.create_topic("t", schema=SCHEMA, key="id")
    with pytest.raises(InvalidRequestError, match=message):
        plan_append(topic).merge_columns(columns)
    assert topic.version == 0


class _Beaten(MemoryStore):
    """Another writer is faster: it does something before the first commit of this one."""

    before: Callable[[], None] | None = None

    def below(self, prefix: str) -> _Beaten:
        return _Beaten(self._name, self._full(prefix.rstrip("/")) + "/")

    def create(self, key: str, data: bytes) -> Created:
        first, _Beaten.before = _Beaten.before, None
        if first is not None:
            first()
        return super().create(key, data)


@pytest.mark.parametrize("other", [pa.int64(), pa.string()])
def test_another_writer_adds_the_same_column_first(other: pa.DataType) -> None:
    store = make_store(_Beaten())
    topic = store.create_topic("t", schema=SCHEMA)
    rival = store.topic("t")
    _Beaten.before = lambda: rival.alter(add_columns={"n": other, "m": "double"})
    if other == pa.int64():
        plan_append(topic).merge_columns(given(n=pa.int64(), note=pa.string()))
        assert topic.schema.names[-3:] == ["n", "m", "note"]
        assert topic.version == 2
    else:
        with pytest.raises(SchemaMismatchError, match=r"column 'n' is bigint .* has string"):
            plan_append(topic).merge_columns(given(n=pa.int64(), note=pa.string()))
        assert topic.version == 1
    assert _Beaten.before is None
