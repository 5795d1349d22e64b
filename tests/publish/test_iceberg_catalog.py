"""A published Iceberg table in a catalog: registered, brought up to date, never confused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

import pylogtable
from pylogtable import Topic
from pylogtable.errors import InvalidRequestError, StorageError
from pylogtable.publish.iceberg.catalog import register
from pylogtable.publish.iceberg.table import IcebergTable
from pylogtable.runtime import Runtime
from pylogtable.storage.local import LocalStore
from tests.publish.plain_iceberg import expected_rows, rows

NAME = "shop.orders"


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    made = SqlCatalog(
        "test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}"
    )
    made.create_namespace("shop")
    yield made
    made.engine.dispose()


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    made = pylogtable.open(str(tmp_path)).create_topic("orders", 2, {"id": pa.int64()})
    made.append(pa.table({"id": range(10)}))
    made.publish(["iceberg"])
    return made


def check(topic: Topic, catalog: Any) -> None:
    schema, expected = expected_rows(topic, topic.version)
    assert rows(catalog.load_table(NAME).scan().to_arrow(), schema) == expected


def test_entry_follows_the_publications(topic: Topic, catalog: Any) -> None:
    assert topic.register_iceberg(catalog, NAME).endswith("/orders/metadata/v1.metadata.json")
    check(topic, catalog)
    for _ in range(3):
        topic.append(pa.table({"id": range(10)}))
        topic.publish(["iceberg"])
        topic.register_iceberg(catalog, ("shop", "orders"))
        check(topic, catalog)
    topic.alter(add_columns={"more": pa.string()})
    topic.merge()
    topic.publish(["iceberg"])
    topic.register_iceberg(catalog, NAME)
    check(topic, catalog)
    assert len(catalog.load_table(NAME).snapshots()) > 4


class StaleDisk(LocalStore):
    """A store as it was before the second publication."""

    def read(self, key: str) -> bytes | None:
        if key == "metadata/version-hint.text":
            return b"1"
        return None if key == "metadata/v2.metadata.json" else super().read(key)


def test_entry_that_is_newer_stays(tmp_path: Path, topic: Topic, catalog: Any) -> None:
    topic.append(pa.table({"id": range(10)}))
    topic.publish(["iceberg"])
    newest = topic.register_iceberg(catalog, NAME)
    slow = IcebergTable(StaleDisk(tmp_path / "orders"), Runtime())
    assert register(slow, catalog, NAME) != newest
    assert catalog.load_table(NAME).metadata_location == newest


def test_entry_that_was_lost_in_between_is_made_again(topic: Topic, catalog: Any) -> None:
    topic.register_iceberg(catalog, NAME)
    catalog.drop_table(NAME)
    topic.register_iceberg(catalog, NAME)
    check(topic, catalog)


def test_two_that_register_at_once_end_with_the_newest(
    topic: Topic, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.register_iceberg(catalog, NAME)
    topic.append(pa.table({"id": range(10)}))
    topic.publish(["iceberg"])
    drop = catalog.drop_table

    def drop_late(name: Any) -> None:
        """Another one replaces the entry just before we do."""
        monkeypatch.setattr(catalog, "drop_table", drop)
        topic.append(pa.table({"id": range(10)}))
        topic.publish(["iceberg"])
        topic.register_iceberg(catalog, name)
        drop(name)

    monkeypatch.setattr(catalog, "drop_table", drop_late)
    topic.register_iceberg(catalog, NAME)
    topic.register_iceberg(catalog, NAME)
    check(topic, catalog)


def test_another_table_of_this_name_is_refused_and_stays(topic: Topic, catalog: Any) -> None:
    other = catalog.create_table(NAME, pa.schema([("x", pa.int64())]))
    with pytest.raises(InvalidRequestError, match=r"shop\.orders.*another table"):
        topic.register_iceberg(catalog, NAME)
    assert catalog.load_table(NAME).metadata_location == other.metadata_location


def test_entry_that_another_writer_has_changed_is_refused(topic: Topic, catalog: Any) -> None:
    topic.register_iceberg(catalog, NAME)
    catalog.load_table(NAME).transaction().set_properties(owner="me").commit_transaction()
    topic.append(pa.table({"id": range(10)}))
    topic.publish(["iceberg"])
    wanted = r"another writer.*shop\.orders.*drop_table\('shop\.orders'\)"
    with pytest.raises(InvalidRequestError, match=wanted):
        topic.register_iceberg(catalog, NAME)
    catalog.drop_table(NAME)
    topic.register_iceberg(catalog, NAME)
    check(topic, catalog)


def test_catalog_that_does_not_answer_is_told_in_one_line(tmp_path: Path, topic: Topic) -> None:
    """Its own error has several lines, and is chained."""
    silent = SqlCatalog("x", uri=f"sqlite:///{tmp_path}/none.db", init_catalog_tables="false")
    with pytest.raises(InvalidRequestError, match=r"does not answer, register again") as told:
        topic.register_iceberg(silent, NAME)
    assert "no such table: iceberg_tables" in str(told.value)
    assert "\n" not in str(told.value)
    silent.engine.dispose()


def test_entry_whose_metadata_file_is_gone_is_refused(topic: Topic, catalog: Any) -> None:
    topic.append(pa.table({"id": range(10)}))
    topic.publish(["iceberg"])
    topic.register_iceberg(catalog, NAME)
    topic.unpublish(["iceberg"])
    topic.publish(["iceberg"])
    with pytest.raises(
        InvalidRequestError, match=r"cannot be loaded.*drop_table\('shop\.orders'\)"
    ):
        topic.register_iceberg(catalog, NAME)
    catalog.drop_table(NAME)
    topic.register_iceberg(catalog, NAME)
    check(topic, catalog)


def test_dropping_the_entry_removes_no_file(tmp_path: Path, topic: Topic, catalog: Any) -> None:
    topic.register_iceberg(catalog, NAME)
    before = sorted((tmp_path / "orders").rglob("*"))
    catalog.drop_table(NAME)
    assert sorted((tmp_path / "orders").rglob("*")) == before
    with pytest.raises(NoSuchTableError):
        catalog.load_table(NAME)


def test_missing_namespace_and_missing_table_say_what_to_do(topic: Topic, catalog: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"create_namespace\(\('other',\)\)"):
        topic.register_iceberg(catalog, "other.orders")
    topic.unpublish(["iceberg"])
    with pytest.raises(InvalidRequestError, match="publish it first"):
        topic.register_iceberg(catalog, NAME)


@pytest.mark.parametrize("identifier", ["orders", "", "shop.", ("orders",), 7, ["shop", 7]])
def test_identifier_needs_a_namespace_and_a_name(
    topic: Topic, catalog: Any, identifier: Any
) -> None:
    with pytest.raises(
        InvalidRequestError, match=r"identifier must have a namespace and a name.*'shop\.orders'"
    ):
        topic.register_iceberg(catalog, identifier)
    assert catalog.list_tables("shop") == []


@pytest.mark.parametrize("other", [None, "default", {"type": "sql"}])
def test_only_catalogs_of_pyiceberg_are_taken(topic: Topic, other: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"not (NoneType|str|dict): .*load_catalog"):
        topic.register_iceberg(other, NAME)


def test_error_of_the_catalog_is_an_error_of_the_library(
    topic: Topic, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionError("no route to the catalog")

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "register_table", refuse)
        with pytest.raises(StorageError, match=r"shop\.orders: no route.*Register it again"):
            topic.register_iceberg(catalog, NAME)
    topic.register_iceberg(catalog, NAME)
    check(topic, catalog)
