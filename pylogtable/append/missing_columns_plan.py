"""Plans to add the columns that appended rows have and the topic has not. Pure."""

from __future__ import annotations

import pyarrow as pa

from pylogtable.append.shaping import RowShaper, check_log_columns
from pylogtable.format.model import Change
from pylogtable.format.schema import OFFSET, PARTITION, TIMESTAMP
from pylogtable.format.snapshot import Snapshot
from pylogtable.topics.column_types import make_fields
from pylogtable.topics.columns_plan import ColumnChanges
from pylogtable.topics.plan import plan_alter


def plan_missing_columns(
    snapshot: Snapshot,
    given: pa.Schema,
    *,
    keep_offsets: bool = False,
    app_id: str | None = None,
) -> Change | None:
    """Add the columns of these rows that the topic does not have, as nullable columns [META-4].
    None if it has all of them. Raises if the rows could not be appended even then. `app_id` is that
    of the import which alters its copy [GUARD-2]."""
    names = {*(field.name for field in snapshot.info.fields), PARTITION, TIMESTAMP, OFFSET}
    known = pa.schema([column for column in given if column.name in names])
    new = [column.with_nullable(True) for column in given if column.name not in names]
    check_log_columns(given, keep_offsets=keep_offsets)
    RowShaper(snapshot.info, 0, 0, keep_offsets=keep_offsets).check_columns(known)
    if not new:
        return None
    changes = ColumnChanges(add=make_fields(pa.schema(new)))
    return plan_alter(snapshot, partitions=None, config={}, columns=changes, app_id=app_id)
