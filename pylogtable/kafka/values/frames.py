"""Which schema a payload names, and where its body begins: the wire format of schema registries.

A payload begins with byte 0 and an id of four bytes, or with byte 1 and a GUID of 16 bytes; or a
header of the record has that, and the payload is the body.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

KEY_HEADER = "__key_schema_id"
VALUE_HEADER = "__value_schema_id"

_BY_ID, _BY_GUID = 0, 1
#: Of the frame: the first byte, and the id or the GUID.
ID_BYTES, _GUID_BYTES = 5, 17


@dataclass(frozen=True)
class Frame:
    """The payloads that name the same schema, by id or by GUID."""

    schema: int | str
    rows: Rows
    bodies: pa.LargeBinaryArray
    #: What follows the name of the schema in a header; None if the payloads name it themselves.
    header_rest: bytes | None = None


@dataclass(frozen=True)
class Split:
    frames: list[Frame]
    #: Row and reason of each payload that names no schema.
    failures: list[tuple[int, str]]


def as_large(payloads: pa.Array | pa.ChunkedArray) -> pa.LargeBinaryArray:
    """As one array, with offsets of 64 bits."""
    if isinstance(payloads, pa.ChunkedArray):
        payloads = payloads.cast(pa.large_binary()).combine_chunks()
    return payloads.cast(pa.large_binary())


def valid_rows(payloads: pa.LargeBinaryArray) -> Rows:
    """The rows that are not null."""
    return np.flatnonzero(payloads.is_valid().to_numpy(zero_copy_only=False))


def without_first(values: pa.LargeBinaryArray, count: int) -> pa.LargeBinaryArray:
    """Without so many bytes, which each of them has. `binary_slice` of Arrow asks for room as if
    all values were as long as the longest."""
    starts, lengths, data = ends_of(values)
    kept = np.ones(len(data), np.bool_)
    kept[starts[:, None] + np.arange(count)] = False
    end = starts[-1] + lengths[-1]
    offsets = np.concatenate([[0], np.cumsum(lengths - count)])
    rest = data[starts[0] : end][kept[starts[0] : end]]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(rest)]
    return pa.Array.from_buffers(pa.large_binary(), len(values), buffers)


def look_framed(payloads: pa.LargeBinaryArray, rows: Rows) -> Mask:
    """Of each of these rows: whether it may begin with byte 0 and an id."""
    starts, lengths, data = ends_of(payloads)
    found = lengths[rows] >= ID_BYTES
    found[found] = data[starts[rows[found]]] == _BY_ID
    return found


def split(
    payloads: pa.LargeBinaryArray, headers: pa.Array | pa.ChunkedArray | None, header: str
) -> Split:
    """The header wins, as in Confluent's clients."""
    frames: list[Frame] = []
    failures: list[tuple[int, str]] = []
    rows = valid_rows(payloads)
    if headers is not None:
        named_rows, names = _named_by(headers, header)
        is_valid = np.isin(named_rows, rows)
        named_rows, names = named_rows[is_valid], names.filter(pa.array(is_valid))
        for named in _split(names, np.arange(len(names)), failures, named_rows):
            here = named_rows[named.rows]
            bodies = payloads.take(pa.array(here))
            frames += [
                Frame(named.schema, here[same], bodies.take(pa.array(same)), rest)
                for rest, same in _equal(named.bodies)
            ]
        rows = np.setdiff1d(rows, named_rows, assume_unique=True)
    frames += _split(payloads, rows, failures, None)
    frames.sort(key=lambda frame: (isinstance(frame.schema, str), frame.schema, frame.rows[0]))
    return Split(frames, failures)


def _split(
    payloads: pa.LargeBinaryArray,
    rows: Rows,
    failures: list[tuple[int, str]],
    reported: Rows | None,
) -> list[Frame]:
    """By what these rows begin with. `reported` are their numbers in failures; None: the same."""
    if not len(rows):
        return []
    starts, lengths, data = ends_of(payloads)
    first = np.full(len(rows), -1)
    has_first = lengths[rows] > 0
    first[has_first] = data[starts[rows[has_first]]]
    frames: list[Frame] = []
    for magic, size in ((_BY_ID, ID_BYTES), (_BY_GUID, _GUID_BYTES)):
        here = rows[(first == magic) & (lengths[rows] >= size)]
        if len(here):
            at = starts[here][:, None] + np.arange(1, size)
            frames += _grouped(payloads, here, data[at], size)
    for row in rows[(first != _BY_ID) & (first != _BY_GUID)]:
        number = row if reported is None else reported[row]
        what = f"begins with byte {data[starts[row]]}" if lengths[row] else "is empty"
        failures.append((int(number), f"it {what}, where the frame of a schema registry has 0"))
    sizes = np.where(first == _BY_GUID, _GUID_BYTES, ID_BYTES)
    for row in rows[((first == _BY_ID) | (first == _BY_GUID)) & (lengths[rows] < sizes)]:
        number = row if reported is None else reported[row]
        short = f"it ends after {lengths[row]} bytes, before the id of its schema"
        failures.append((int(number), short))
    return frames


def _grouped(
    payloads: pa.LargeBinaryArray, rows: Rows, names: npt.NDArray[np.uint8], size: int
) -> list[Frame]:
    if size == ID_BYTES:
        keys = names.copy().view(">u4").reshape(-1)
    else:
        keys = names.copy().view("V16").reshape(-1)
    groups = [(keys[0], rows)]
    if not (keys == keys[0]).all():
        distinct, which = np.unique(keys, return_inverse=True)
        groups = [(key, rows[which == number]) for number, key in enumerate(distinct)]
    frames = []
    for key, here in groups:
        name = int(key) if size == ID_BYTES else _guid_text(key.tobytes())
        chosen = payloads if len(here) == len(payloads) else payloads.take(pa.array(here))
        frames.append(Frame(name, here, without_first(chosen, size)))
    return frames


def ends_of(array: pa.LargeBinaryArray) -> tuple[Rows, Rows, npt.NDArray[np.uint8]]:
    """Starts, lengths and the bytes that they are of."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    data_bytes = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return ends[:-1], np.diff(ends), data_bytes


def _named_by(headers: pa.Array | pa.ChunkedArray, name: str) -> tuple[Rows, pa.Array]:
    """The rows with that header, and its value: the first that a row has."""
    if isinstance(headers, pa.ChunkedArray):
        headers = headers.combine_chunks()
    flat = headers.flatten()
    parents = pc.list_parent_indices(headers).to_numpy()
    is_named = pc.fill_null(pc.equal(flat.field("key"), name), False)
    values = flat.field("value").filter(is_named).cast(pa.large_binary())
    rows, first = np.unique(parents[is_named.to_numpy(zero_copy_only=False)], return_index=True)
    values = values.take(pa.array(first))
    has_value = values.is_valid()
    return rows[has_value.to_numpy(zero_copy_only=False)], values.filter(has_value)


def _equal(values: pa.LargeBinaryArray) -> list[tuple[bytes, Rows]]:
    """The rows of each value. There are few values: message indexes, or nothing."""
    encoded = values.dictionary_encode()
    codes = encoded.indices.to_numpy()
    return [
        (value, np.flatnonzero(codes == code))
        for code, value in enumerate(encoded.dictionary.to_pylist())
    ]


def _guid_text(guid: bytes) -> str:
    digits = guid.hex()
    ends = (0, 8, 12, 16, 20, 32)
    return "-".join(digits[start:end] for start, end in itertools.pairwise(ends))
