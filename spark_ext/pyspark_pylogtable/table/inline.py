"""Records that are in commits and not in files, as a DataFrame beside the scans of the files.

The driver reads few of them and sends them along with the plan: a Spark task that only reads some
kilobytes would take longer to start. Tasks read many. Spark's own filters and counts work on both.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from pylogtable import View
from pylogtable.engine import ReadTask, Scan, by_commit
from pyspark_pylogtable.table.parts_df import df_of_parts


def inline_df(
    spark: SparkSession, view: View, tasks: Sequence[ReadTask], columns: Sequence[str]
) -> DataFrame:
    """The records of tasks whose segments are in commits, with these columns, all nullable."""
    scan = Scan(view)
    parts = by_commit(tasks)
    return df_of_parts(
        spark, scan, parts, columns, in_driver=len(parts) <= scan.limits.driver_commits
    )
