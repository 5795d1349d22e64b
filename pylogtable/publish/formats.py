"""The table formats that a topic can be published in."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pylogtable.publish.delta.table import DeltaTable
from pylogtable.publish.iceberg.manifests import need_pyiceberg
from pylogtable.publish.iceberg.table import IcebergTable
from pylogtable.publish.table import Table
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectStore

_TABLES: dict[str, Callable[[ObjectStore, Runtime], Table]] = {
    "delta": DeltaTable,
    "iceberg": IcebergTable,
}


def check_installed(names: Iterable[str]) -> None:
    """Raise if a package is missing that one of these formats needs."""
    if "iceberg" in names:
        need_pyiceberg()


def table_of(name: str, store: ObjectStore, runtime: Runtime) -> Table:
    """The table of this format of the topic at the root of `store`."""
    return _TABLES[name](store, runtime)


def tables_in(listing: Iterable[str], store: ObjectStore, runtime: Runtime) -> list[Table]:
    """The tables that have objects among the keys of a listing."""
    folders = {key.partition("/")[0] for key in listing}
    made = (make(store, runtime) for make in _TABLES.values())
    return [table for table in made if table.folder.rstrip("/") in folders]
