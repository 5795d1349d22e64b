"""Readers of others for tables that hide rows: each gives all rows of the table in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import deltalake
import polars
import pyarrow as pa

from tests.publish.plain_iceberg import open_table


def by_delta_rs(folder: Path) -> pa.Table:
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(folder)))
    return pa.table(query.execute("SELECT * FROM t").read_all())


def by_polars_with_filter(folder: Path) -> pa.Table:
    found = polars.scan_delta(str(folder)).filter(polars.col("offset") >= 0)
    return found.collect().to_arrow()


ENGINES: dict[str, Callable[[Path], pa.Table]] = {
    "delta of delta-rs": by_delta_rs,
    "polars delta": lambda folder: polars.scan_delta(str(folder)).collect().to_arrow(),
    "polars delta with a filter": by_polars_with_filter,
    "pyiceberg": lambda folder: open_table(folder).scan().to_arrow(),
    "pyiceberg with a filter": lambda folder: (
        open_table(folder).scan(row_filter="offset >= 0").to_arrow()
    ),
    "polars iceberg": lambda folder: (
        polars.scan_iceberg(str(folder), reader_override="pyiceberg").collect().to_arrow()
    ),
}
