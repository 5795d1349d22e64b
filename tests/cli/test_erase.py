"""`pylogtable erase`."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import pylogtable
from tests.builders import kafka, rows
from tests.cli.conftest import Run

TYPES = {
    "tenant": pa.string(),
    "id": pa.int32(),
    "day": pa.date32(),
    "price": pa.decimal128(10, 2),
    "ratio": pa.float32(),
    "ok": pa.bool_(),
    "raw": pa.binary(),
    "tags": pa.list_(pa.string()),
}


@pytest.fixture
def orders(store_dir: Path) -> pylogtable.Topic:
    topic = pylogtable.open(store_dir).create_topic("orders", schema=TYPES, key=["tenant", "id"])
    values = [
        ("acme", 1, date(2024, 5, 1), Decimal("1.50"), 0.1, True, b"x"),
        ("acme", 2, date(2024, 5, 2), Decimal("2.50"), 0.2, False, b"\xff"),
        ("bond", 1, date(2024, 5, 1), Decimal("3.50"), None, None, None),
    ]
    names = list(TYPES)[:7]
    topic.append(
        pa.table(
            {
                name: pa.array([row[number] for row in values], TYPES[name])
                for number, name in enumerate(names)
            }
        )
    )
    return topic


def test_keys_are_erased_after_a_confirmation(run: Run, store_dir: Path) -> None:
    topic = pylogtable.open(store_dir).create_topic("users")
    topic.append(kafka(["ann", "bob", "ann"]))
    ask = ("erase", "users", "--key", "ann", "--key", "nobody")
    run(*ask).failed("this would remove 2 records of users for good", "--yes", "--dry-run")
    looked = run(*ask, "--dry-run")
    assert looked.out.startswith("users: would erase 2 records from 1 segment")
    assert topic.count() == 3
    done = run(*ask, "--yes")
    assert done.out.startswith("users: erased 2 records from 1 segment")
    assert "versions 0 to 1 may still have them" in done.out
    assert rows(topic.read(), "offset", "key") == [(1, b"bob")]


def test_the_report_as_json(run: Run, orders: pylogtable.Topic) -> None:
    report = run("erase", "orders", "--where", "tenant=acme", "--yes", "--output", "json").json
    assert (report["topic"], report["records_erased"]) == ("orders", 2)
    assert (report["held_from"], report["held_to"], report["partitions"]) == (0, 1, {"0": 2})
    assert len(report["old_files"]) == 1
    assert rows(orders.read(), "tenant") == ["bond"]


def test_a_key_of_several_columns_is_an_object(run: Run, orders: pylogtable.Topic) -> None:
    run("erase", "orders", "--key", "acme", "--yes").failed("--key-json", status=2)
    for wrong in ("7", "{", '{"tenant": "acme"}', '{"tenant": "acme", "id": "one"}'):
        run("erase", "orders", "--key-json", wrong, "--yes").failed("--key-json", status=2)
    one = '{"tenant": "acme", "id": 1}'
    assert run("erase", "orders", "--key-json", one, "--yes").status == 0
    assert rows(orders.read(), "offset") == [1, 2]


@pytest.mark.parametrize(
    ("condition", "offsets"),
    [
        ("id=1", [0, 2]),
        ("day=2024-05-01", [0, 2]),
        ("price=2.5", [1]),
        ("ratio=0.1", [0]),
        ("ok=false", [1]),
        ("raw=x", [0]),
        ("partition=0", [0, 1, 2]),
        ("offset=2", [2]),
        ("timestamp=2001-01-01T00:00:00Z", []),
    ],
)
def test_values_are_of_the_columns_type(
    run: Run, orders: pylogtable.Topic, condition: str, offsets: list[int]
) -> None:
    assert run("erase", "orders", "--where", condition, "--yes").status == 0
    assert rows(orders.read(), "offset") == [n for n in range(3) if n not in offsets]


def test_all_conditions_must_be_true(run: Run, orders: pylogtable.Topic) -> None:
    both = ("--where", "tenant=acme", "--where", "id=1")
    assert run("erase", "orders", *both, "--yes").status == 0
    assert rows(orders.read(), "offset") == [1, 2]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--where"),
        (["--key", "a", "--where", "id=1"], "not both"),
        (["--where", "id"], "COLUMN=VALUE"),
        (["--where", "idd=1"], "did you mean 'id'?"),
        (["--where", "id=one"], "'id' is int32"),
        (["--where", "id=1.5"], "whole number"),
        (["--where", "day=soon"], "'day'"),
        (["--where", "tags=a"], "no values of one word"),
        (["--where", "id=null"], "no value of 'id' equals null"),
        (["--where", "ratio=null"], "is_null(pyarrow.compute.field('ratio'))"),
        (["--where", "ratio=NaN"], "is_nan(pyarrow.compute.field('ratio'))"),
    ],
)
def test_wrong_usage_is_refused(
    run: Run, orders: pylogtable.Topic, options: list[str], words: str
) -> None:
    run("erase", "orders", *options, "--yes").failed(words, status=2)
    assert orders.count() == 3


def test_bytes_that_are_no_text_are_in_base64(run: Run, store_dir: Path) -> None:
    topic = pylogtable.open(store_dir).create_topic("t")
    topic.append(kafka([b"\xff", b"a"]))
    assert run("erase", "t", "--key-json", '{"key_base64": "/w=="}', "--yes").status == 0
    assert rows(topic.read(), "key") == [b"a"]


def test_topic_without_a_key_is_told_to_use_a_condition(run: Run, store_dir: Path) -> None:
    pylogtable.open(store_dir).create_topic("t", schema={"n": pa.int64()})
    run("erase", "t", "--key", "1", "--yes").failed("'t' has no key columns", "use --where")
