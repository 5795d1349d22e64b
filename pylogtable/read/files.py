"""The files of a version, with what another reader has to know to read them rightly."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pylogtable.errors import InvalidRequestError
from pylogtable.format.leaf import LEAF_SCHEMA
from pylogtable.format.snapshot import Snapshot
from pylogtable.lazy_arrow import pc
from pylogtable.presentation import count_text

#: The columns of `Topic.segments`.
SEGMENTS_SCHEMA = LEAF_SCHEMA
#: The columns of `Topic.files`.
FILES_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("shift", pa.int64(), nullable=False),
        pa.field("start_offset", pa.int64(), nullable=False),
        pa.field("end_offset", pa.int64(), nullable=False),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("min_timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("max_timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
_UNCHANGED = ("partition", "shift", "end_offset", "records", "size_bytes")


def check_in_files(url: str, snapshot: Snapshot) -> None:
    """Raise if some records are in no file [INL-1]. The snapshot knows how many [INL-7]."""
    inline = snapshot.inline
    if inline is not None and inline.segments:
        raise InvalidRequestError(
            f"{inline.records:,} records of {url} at version "
            f"{snapshot.version} are in {count_text(inline.segments, 'segment')} without a "
            "file: small appends are in their commits. topic.merge() writes files for them; then "
            "ask for the files of the newest version. topic.read(version=...) has all records of "
            "any version. With the setting inline.max.bytes=0 every append writes files"
        )


def files_table(url: str, snapshot: Snapshot, entries: pa.Table) -> pa.Table:
    """A row for each file with records. `entries` are the live segments of the snapshot, all of
    them in files; `url` is the topic's."""
    entries = entries.filter(pc.greater(entries["records"], 0))
    log_starts = np.array([state.log_start for state in snapshot.partitions], np.int64)
    below = log_starts[entries["partition"].to_numpy()]
    folder = url.removeprefix("file://")  # most readers want a plain path of a local file
    columns = {
        **{name: entries[name] for name in _UNCHANGED},
        "path": pc.binary_join_element_wise(f"{folder}/", entries["path"], ""),
        "start_offset": pa.array(np.maximum(entries["base_offset"].to_numpy(), below)),
        "min_timestamp": entries["min_timestamp_us"].cast(pa.timestamp("us", tz="UTC")),
        "max_timestamp": entries["max_timestamp_us"].cast(pa.timestamp("us", tz="UTC")),
    }
    return pa.table(columns).select(FILES_SCHEMA.names).cast(FILES_SCHEMA)
