"""Records inside a commit: how they are packed, and what a commit says about them. Pure.

A small append needs no file: its records are in the commit itself, as an Arrow stream [INL-2]. The
entries of such records name the commit, and the first of its rows that is theirs [INL-1].
"""

from __future__ import annotations

import base64
import binascii
from contextlib import suppress

import pyarrow as pa

from pylogtable.errors import CorruptTopicError, SchemaMismatchError
from pylogtable.format.field_ids import Fault
from pylogtable.format.model import (
    INLINE_BATCHES,
    MAX_ROWS_BYTES,
    MAX_UNPACKED_BYTES,
    Commit,
    Protocol,
    Segment,
)
from pylogtable.format.null_structs import without_hidden_nulls
from pylogtable.format.paths import commit_path, parse_inline_path
from pylogtable.format.schema import from_arrow

_CODEC = "zstd"


def pack_rows(rows: pa.RecordBatch) -> bytes:
    """Rows (`timestamp` and the topic's columns under their stored names) as compressed bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    packed: bytes = pa.compress(sink.getvalue(), codec=_CODEC, asbytes=True)
    return packed


def unpack(packed: bytes, source: str) -> pa.RecordBatch:
    """The rows in these bytes, which are of the object `source`. What they hold is checked before
    anybody uses it: damaged bytes could end the process."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(packed), _CODEC) as stream:
            data = stream.read_buffer(MAX_UNPACKED_BYTES + 1)
        if data.size > MAX_UNPACKED_BYTES:
            detail = f"its rows have more than {MAX_UNPACKED_BYTES} bytes"
            raise CorruptTopicError(source, "INL-5", detail)
        with pa.ipc.open_stream(data) as reader:
            batches = list(reader)
        if len(batches) != 1:
            detail = f"its rows are {len(batches)} batches, and must be one"
            raise CorruptTopicError(source, "INL-2", detail)
        batches[0].validate(full=True)
        _check_names(batches[0].schema)
        columns = [without_hidden_nulls(column) for column in batches[0].columns]
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise CorruptTopicError(source, "INL-2", f"its rows cannot be read: {error}") from None
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def _check_names(schema: pa.Schema) -> None:
    """Raise `UnicodeDecodeError` if the name of a column, or of a field in it, is not text. Arrow
    finds that out only when somebody asks for the name."""
    for _, kind in zip(schema.names, schema.types, strict=True):
        with suppress(SchemaMismatchError):  # whether the type fits is seen when it is read
            from_arrow(kind)


def to_text(packed: bytes) -> str:
    """Packed rows as a commit has them."""
    return base64.b64encode(packed).decode("ascii")


def from_text(text: str, source: str) -> bytes:
    """The packed rows of a commit."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CorruptTopicError(source, "INL-2", f"its rows are not base64: {error}") from None


def own_entries(commit: Commit) -> list[Segment]:
    """The entries of a commit whose records it has itself, in the order of their rows."""
    prefix = f"{commit_path(commit.version)}@"
    return [segment for segment in commit.add if segment.path.startswith(prefix)]


def rows_fault(commit: Commit, protocol: Protocol) -> Fault | None:
    """The rule that the rows of a commit break; None if they break none. `protocol` is the
    one in force. How many rows there really are is seen when they are read [INL-3]."""
    if commit.rows is not None and not protocol.announces(INLINE_BATCHES):
        detail = f"it has rows, and the protocol does not name {INLINE_BATCHES} in both lists"
        return Fault("INL-1", detail)
    return entries_fault(commit)


def entries_fault(commit: Commit) -> Fault | None:
    """Why the rows of a commit, and its entries for them, contradict each other [INL-3]. Who reads
    the rows checks it again: a state that began at a root has not seen the commit."""
    own = own_entries(commit)
    if commit.rows is None:
        return Fault("INL-3", f"it has no rows, and an entry {own[0].path}") if own else None
    if not own:
        return Fault("INL-3", "it has rows that no entry names")
    at = 0
    for segment in own:
        place = parse_inline_path(segment.path)
        assert place is not None
        if place[1] != at:
            return Fault("INL-3", f"{segment.path} does not begin at row {at}")
        at += segment.records
    size = _packed_size(commit.rows)
    if size > MAX_ROWS_BYTES:
        return Fault("INL-5", f"its rows have {size} bytes; {MAX_ROWS_BYTES} are allowed")
    named = sum(segment.size_bytes for segment in own)
    if named != size:
        return Fault("INL-3", f"its entries have {named} bytes, and its rows {size}")
    return None


def sizes(records: list[int], size: int) -> list[int]:
    """How many of the bytes of packed rows each entry gets, in proportion to its records."""
    total, done, given = sum(records), 0, 0
    found = []
    for count in records:
        done += count
        found.append(size * done // total - given)
        given += found[-1]
    return found


def _packed_size(text: str) -> int:
    return len(text) // 4 * 3 - text[-2:].count("=")
