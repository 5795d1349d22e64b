"""Where a Parquet footer says that the Bloom filters are, and how it is told so. Pure.

Older versions of pyarrow neither write filters nor tell where they are. So our writer adds the
place of its own ones to a footer, as Parquet defines it, and our reader finds those of everybody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pylogtable.format.thrift import I32, I64, LIST, STRUCT, Thrift, field_head, integer_bytes

# After the metadata: its length, and "PAR1".
_END_BYTES = 8

# Field ids of parquet.thrift.
_ROW_GROUPS, _COLUMNS, _CHUNK_METADATA = 4, 1, 3
_FILTER_OFFSET, _FILTER_LENGTH = 14, 15


class ChunkId(NamedTuple):
    """A column of a row group, both by number."""

    group: int
    column: int


class FilterPlace(NamedTuple):
    """Where in the file a filter is, its header included."""

    offset: int
    length: int


def filter_places(footer: bytes) -> dict[ChunkId, FilterPlace]:
    """The place of every filter, in the order of row groups and columns. Raises LookupError or
    ValueError if this is no footer."""
    thrift = Thrift(footer)
    places = {}
    for chunk in _chunks(thrift):
        found = {}
        for field, kind in thrift.fields():
            if field in (_FILTER_OFFSET, _FILTER_LENGTH) and kind in (I32, I64):
                found[field] = thrift.integer()
            else:
                thrift.value(kind)
        if len(found) == 2:
            places[chunk] = FilterPlace(found[_FILTER_OFFSET], found[_FILTER_LENGTH])
    return places


def with_filter_places(footer: bytes, places: Mapping[ChunkId, FilterPlace]) -> bytes:
    """The footer, which names no filters yet, with the places of these."""
    thrift = Thrift(footer)
    pieces = []
    copied = 0
    for chunk in _chunks(thrift):
        place = places.get(chunk)
        last, end = 0, thrift.at
        for field, kind in thrift.fields():
            after_head = thrift.at
            if place is not None and field > _FILTER_LENGTH:
                # The head of a field depends on the field before it.
                head = field_head(field, _FILTER_LENGTH, kind)
                pieces += [footer[copied:end], _named(place, last), head]
                copied, place = after_head, None
            thrift.value(kind)
            last, end = field, thrift.at
        if place is not None:
            pieces += [footer[copied:end], _named(place, last)]
            copied = end
    metadata = b"".join([*pieces, footer[copied:-_END_BYTES]])
    return metadata + len(metadata).to_bytes(4, "little") + footer[-4:]


def _named(place: FilterPlace, after: int) -> bytes:
    return b"".join(
        [
            field_head(_FILTER_OFFSET, after, I64),
            integer_bytes(place.offset),
            field_head(_FILTER_LENGTH, _FILTER_OFFSET, I32),
            integer_bytes(place.length),
        ]
    )


def _chunks(thrift: Thrift) -> Iterator[ChunkId]:
    """Every column chunk, with `thrift` at the beginning of its metadata. The caller reads these
    before it goes on."""
    for _ in _items(thrift, _ROW_GROUPS, LIST):
        groups, _ = thrift.list_head()
        for group in range(groups):
            for _ in _items(thrift, _COLUMNS, LIST):
                columns, _ = thrift.list_head()
                for column in range(columns):
                    for _ in _items(thrift, _CHUNK_METADATA, STRUCT):
                        yield ChunkId(group, column)


def _items(thrift: Thrift, wanted: int, kind: int) -> Iterator[None]:
    """Reads a struct, and stops at the value of the field `wanted`, which the caller reads."""
    for field, found in thrift.fields():
        if (field, found) == (wanted, kind):
            yield
        else:
            thrift.value(found)
