"""What a segment entry must satisfy by itself, wherever it stands [SEG-10]. Pure.

An entry is checked when it is decoded: in a commit, in the tail of a root, in a leaf. A reader
trusts entries to choose files and row groups, so a wrong one would lose or repeat records.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.errors import CorruptTopicError
from pylogtable.format.model import MAX_FILE_BYTES, Segment
from pylogtable.format.paths import INLINE_PATTERN, SEGMENT_PATTERN, check_segment_path, floor_of
from pylogtable.lazy_arrow import pc

Int64s = npt.NDArray[np.int64]
Faults = npt.NDArray[np.bool_]


def check_entry(segment: Segment, partition: int, *, source: str) -> None:
    """Raise if the object `source` has an entry that cannot be right [PATH-4], [SEG-10]. It stands
    among those of `partition`."""
    if segment.partition != partition:
        raise CorruptTopicError(
            source, "SEG-10", f"{segment.path}: its entry says partition {segment.partition}"
        )
    check_segment_path(segment.path, partition, source=source)
    fault = _fault(segment)
    if fault is not None:
        raise CorruptTopicError(source, "SEG-10", f"{segment.path}: {fault}")
    fault = _inline_fault(segment) if segment.is_inline else None
    if fault is not None:
        raise CorruptTopicError(source, "INL-1", f"{segment.path}: {fault}")


def floor_fault(segment: Segment, *, is_appended: bool) -> str | None:
    """Why the floor in a segment's path contradicts its entry; None if it does not. The first
    record of an appended segment is the floor plus the shift; rewriting may drop that record."""
    if not segment.records or segment.is_inline:
        return None
    first = segment.base_offset + segment.row_groups[0]
    floor = floor_of(segment.path)
    if first < floor + segment.shift or (is_appended and first != floor + segment.shift):
        return f"{segment.path}: its first record would be {first} with a shift of {segment.shift}"
    return None


def _fault(segment: Segment) -> str | None:
    claim = segment.end_offset - segment.base_offset
    groups = segment.row_groups
    if claim <= 0:
        return f"it claims [{segment.base_offset}, {segment.end_offset})"
    if segment.records > claim:
        return f"it has {segment.records} records and claims {claim} offsets"
    if segment.shift < 0:
        return f"its shift is {segment.shift}"
    if segment.size_bytes > MAX_FILE_BYTES:
        return f"its file would have {segment.size_bytes} bytes"
    if segment.tombstones > segment.records:
        return f"{segment.tombstones} of its {segment.records} records are tombstones"
    if not segment.records:
        return None if groups in {(), (0,)} else f"it has no records, and row groups {groups}"
    if segment.min_timestamp_us > segment.max_timestamp_us:
        return f"its times go from {segment.min_timestamp_us} to {segment.max_timestamp_us}"
    if not 1 <= len(groups) <= segment.records:
        return f"it has {segment.records} records in {len(groups)} row groups"
    if groups[-1] >= claim or (len(groups) > 1 and not _rise(groups)):
        return f"its row groups do not rise inside of {claim} offsets: {groups}"
    if segment.is_dense and groups[0]:
        return f"it has no holes, and its first row group begins at {groups[0]}"
    return None


def _inline_fault(segment: Segment) -> str | None:
    """Why an entry of records in a commit cannot be right [INL-1]; None if it can."""
    plain = (0, (0,), None)
    if (segment.shift, segment.row_groups, segment.footer_checksum) != plain:
        return "records in a commit have no shift, one row group and no footer"
    return None if segment.is_dense else "records in a commit have no holes"


def _rise(numbers: tuple[int, ...]) -> bool:
    return all(first < later for first, later in pairwise(numbers))


def check_entries(entries: pa.Table, *, source: str) -> None:
    """Raise if an entry of a table cannot be right. The same as `check_entry` for many entries at
    once, but for their paths."""
    for is_wrong, rule, detail in _faults(entries):
        if is_wrong.any():
            at = int(np.flatnonzero(is_wrong)[0])
            path = entries["path"][at].as_py()
            raise CorruptTopicError(source, rule, f"entry {at}, {path}: {detail}")


def are_inline(entries: pa.Table) -> npt.NDArray[np.bool_]:
    """Which entries of a table have their records in a commit [INL-1]."""
    found: npt.NDArray[np.bool_] = pc.match_substring(entries["path"], "@").to_numpy()
    return found


def check_paths(entries: pa.Table, *, source: str) -> None:
    """Raise if an entry of a table names a file that is not one of its partition [PATH-4], or whose
    floor contradicts the entry [SEG-10]. The same as `floor_fault` for many entries at once."""
    entries = entries.filter(pc.invert(pc.match_substring_regex(entries["path"], INLINE_PATTERN)))
    found = pc.extract_regex(entries["path"], SEGMENT_PATTERN)
    numbers = pc.cast(pc.struct_field(found, "partition"), pa.int64())
    is_wrong = pc.fill_null(pc.not_equal(numbers, entries["partition"]), True)
    at = pc.index(is_wrong, True).as_py()
    if at >= 0:
        entry = entries.slice(at, 1).to_pylist()[0]
        check_segment_path(entry["path"], entry["partition"], source=source)
    filled = entries.append_column("floor", pc.struct_field(found, "floor"))
    filled = filled.filter(pc.greater(entries["records"], 0))
    first = pc.add(filled["base_offset"], pc.list_element(filled["row_groups"], 0))
    stored = pc.subtract(first, filled["shift"])
    # A floor has 20 digits. It may be larger than any offset, so digits are compared.
    digits = pc.utf8_lpad(stored.cast(pa.string()), width=20, padding="0")
    is_low = pc.or_(pc.less(stored, 0), pc.less(digits, filled["floor"]))
    at = pc.index(is_low, True).as_py()
    if at >= 0:
        path, shift = filled["path"][at], filled["shift"][at]
        detail = f"{path}: its first record would be {first[at]} with a shift of {shift}"
        raise CorruptTopicError(source, "SEG-10", detail)


def _faults(entries: pa.Table) -> Iterator[tuple[Faults, str, str]]:
    for is_wrong, detail in _own_faults(entries):
        yield is_wrong, "SEG-10", detail
    is_inline = pc.match_substring_regex(entries["path"], INLINE_PATTERN).to_numpy()
    if is_inline.any():
        dense = pc.subtract(entries["end_offset"], entries["base_offset"]).to_numpy()
        is_plain = (
            (entries["shift"].to_numpy() == 0)
            & (entries["records"].to_numpy() == dense)
            & (entries["row_groups"].combine_chunks().value_lengths().to_numpy() == 1)
            & pc.is_null(entries["footer_checksum"]).to_numpy()
        )
        detail = "records in a commit have no shift, no holes, one row group and no footer"
        yield is_inline & ~is_plain, "INL-1", detail


def _own_faults(entries: pa.Table) -> Iterator[tuple[Faults, str]]:
    def column(name: str) -> Int64s:
        values: Int64s = entries[name].to_numpy()
        return values

    base, records = column("base_offset"), column("records")
    for name in ("partition", "base_offset", "shift", "records", "size_bytes", "tombstones"):
        yield column(name) < 0, f"its {name} is negative"
    for name, least in (("delete_horizon_ms", 0), ("hashed_over", 1)):
        yield entries[name].fill_null(least).to_numpy() < least, f"its {name} is too small"
    is_hex = pc.match_substring_regex(entries["footer_checksum"], "^[0-9a-f]{8}$")
    yield ~is_hex.fill_null(True).to_numpy(), "its footer_checksum is not 8 hex digits"
    yield column("size_bytes") > MAX_FILE_BYTES, "its file would be too large"
    yield column("end_offset") <= base, "it claims no offsets"
    claim = column("end_offset") - base
    yield records > claim, "it has more records than it claims offsets"
    yield column("tombstones") > records, "it has more tombstones than records"
    has_records = records > 0
    backward = column("min_timestamp_us") > column("max_timestamp_us")
    yield has_records & backward, "its least time is after its greatest"
    groups = entries["row_groups"].combine_chunks()
    counts = groups.value_lengths().to_numpy()
    if groups.flatten().null_count:
        yield np.ones(len(records), np.bool_), "it may have a row group that is null"
    values = groups.flatten().to_numpy()
    owner = np.repeat(np.arange(len(counts)), counts)
    first = np.full(len(counts), -1, np.int64)
    first[owner[::-1]] = values[::-1]
    yield _any_of(values < 0, owner, len(counts)), "a row group begins before the segment"
    yield _any_of(values >= claim[owner], owner, len(counts)), "a row group begins after its end"
    falls = (owner[1:] == owner[:-1]) & (values[1:] <= values[:-1])
    yield _any_of(falls, owner[1:], len(counts)), "its row groups do not rise"
    yield has_records & ((counts < 1) | (counts > records)), "it has too few or too many row groups"
    yield has_records & (records == claim) & (first != 0), "its first row group does not begin at 0"
    is_bare = (counts == 0) | ((counts == 1) & (first == 0))
    yield ~has_records & ~is_bare, "it has row groups but no records"


def _any_of(flags: Faults, owner: Int64s, count: int) -> Faults:
    """For each entry, whether one of its row groups is flagged."""
    found = np.zeros(count, np.bool_)
    found[owner[flags]] = True
    return found
