"""A write as the driver plans it, before any data is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.types import StructType

from pylogtable.engine import AppendPlan, plan_append
from pyspark_pylogtable.request.destination import Destination, find_destination
from pyspark_pylogtable.request.options import Options
from pyspark_pylogtable.tasks.driver import Driver, check_shared
from pyspark_pylogtable.tasks.write_columns import (
    checked_plan,
    has_every_column,
    set_by_log,
    spark_columns,
)


@dataclass(frozen=True)
class PlannedWrite:
    """Where the rows of a write go. `plan` is that of its only topic: with it, tasks open nothing.
    It is None if each row names its topic."""

    where: Destination
    plan: AppendPlan | None
    driver: Driver = field(default_factory=Driver)

    @contextmanager
    def in_task(self) -> Iterator[None]:
        """The work of a task, whose errors tell what the driver has and the executor has not."""
        url = self.where.store.url
        if self.plan is not None:  # without one, a task may be about to create the store
            url = self.plan.store.url
            check_shared(url)
        with self.driver.explaining(url, note=_what_stays(self.plan)):
            yield

    def for_rows(self, topic: str, columns: pa.Schema) -> AppendPlan:
        """The plan by which a task stages rows with these columns. Only a topic that rows name is
        opened here, and created if the options say how."""
        if self.plan is not None:
            return self.plan
        where = self.where
        opened = where.creation.open(where.store, topic)
        plan = plan_append(opened, keep_offsets=where.keeps_offsets, refresh=False)
        return checked_plan(plan, columns, merge=where.merges_schema)

    def for_staged(self, topic: str) -> AppendPlan:
        """The plan for what was staged for a topic. If that was deleted since then, it is not
        created again."""
        if self.plan is not None:
            return self.plan
        return plan_append(self.where.store.topic(topic), refresh=False)


def _what_stays(plan: AppendPlan | None) -> str:
    """The driver has to create a topic before tasks write to it. It cannot take it back when they
    fail: another writer may have opened it since, and would lose its append."""
    if plan is None or plan.version > 0:
        return ""
    return f". Topic {plan.name!r} stays, without records; the same write can be run again"


def plan_write(options: Options, schema: StructType) -> PlannedWrite:
    """Find or create the topic, and check the columns."""
    columns = spark_columns(schema)
    where, topic = find_destination(options, columns)
    if topic is None:
        return PlannedWrite(where, None)
    plan = plan_append(topic, keep_offsets=where.keeps_offsets, refresh=False)
    given = columns
    if has_every_column(plan.schema, columns):
        dropped = set_by_log(where.keeps_offsets)
        given = pa.schema([column for column in columns if column.name not in dropped])
    return PlannedWrite(where, checked_plan(plan, given, merge=where.merges_schema))
