"""The end of a segment's file: its footer, and what proves that it is the right one [SUM-3].

Our writer adds two texts to a footer: the path of the file, and a checksum of each Bloom filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

import pyarrow as pa

from pylogtable.errors import CorruptTopicError
from pylogtable.format.footer_filters import (
    ChunkId,
    FilterPlace,
    filter_places,
    with_filter_places,
)
from pylogtable.format.footer_shape import shape_fault
from pylogtable.format.json_bytes import checksum
from pylogtable.format.model import Segment
from pylogtable.lazy_arrow import pq
from pylogtable.segments.bloom import filter_lengths

PATH_KEY = "pylogtable.path"
FILTERS_KEY = "pylogtable.filters"

_MAGIC = b"PAR1"
_END_BYTES = 8
_DIGITS = 8


class Footer:
    """The footer of a segment's file, parsed. `tail` is what was fetched with it: the file from
    `tail_start` on."""

    def __init__(self, data: bytes, tail: bytes = b"", tail_start: int = 0) -> None:
        self._data = data
        self._tail = tail
        self._tail_start = tail_start
        self.metadata = pq.read_metadata(pa.BufferReader(data))

    def text(self, key: str) -> bytes | None:
        """The value of a key-value pair."""
        value: bytes | None = (self.metadata.metadata or {}).get(key.encode())
        return value

    @cached_property
    def filters(self) -> dict[ChunkId, FilterPlace]:
        """The place of every Bloom filter. pyarrow tells it from version 25 on; reading it here
        takes longer."""
        if not hasattr(pq.ColumnChunkMetaData, "bloom_filter_offset"):
            return filter_places(self._data)
        places = {}
        for group in range(self.metadata.num_row_groups):
            columns = self.metadata.row_group(group)
            for column in range(self.metadata.num_columns):
                chunk = columns.column(column)
                if chunk.bloom_filter_offset is not None and chunk.bloom_filter_length is not None:
                    place = FilterPlace(chunk.bloom_filter_offset, chunk.bloom_filter_length)
                    places[ChunkId(group, column)] = place
        return places

    def at_hand(self, place: FilterPlace) -> bytes | None:
        """The bytes of a filter, if they were fetched with the footer. Filters lie before it."""
        at = place.offset - self._tail_start
        found = self._tail[at : at + place.length] if at >= 0 else b""
        return found if len(found) == place.length else None

    @cached_property
    def filter_checksums(self) -> dict[ChunkId, str] | None:
        """The checksum of each Bloom filter. None if the writer gave none."""
        text = self.text(FILTERS_KEY)
        if text is None:
            return None
        sums = [text[at : at + _DIGITS].decode("ascii") for at in range(0, len(text), _DIGITS)]
        return dict(zip(self.filters, sums, strict=len(self.filters) == len(sums)))


def read_footer(source: pa.NativeFile, segment: Segment, tail_bytes: int) -> Footer:
    """The footer of a segment's file. `tail_bytes` of it are fetched at once. Its checksum is
    compared before anything is parsed: a damaged footer may end the process. Without a checksum,
    the damage that is known to do so is looked for."""
    size = int(source.size())
    start = max(0, size - tail_bytes)
    tail = _read(source, start, size)
    length = _footer_bytes(tail, segment.path)
    if length > len(tail):
        if length > size:
            raise CorruptTopicError(segment.path, "SEG-2", "its footer is longer than the file")
        tail = _read(source, size - length, start) + tail
        start = size - length
    footer = tail[-length:]
    if segment.footer_checksum is None:
        fault = shape_fault(footer)
        if fault is not None:
            raise CorruptTopicError(segment.path, "SEG-2", fault)
    elif checksum(footer) != segment.footer_checksum:
        raise CorruptTopicError(
            segment.path,
            "SUM-3",
            f"its footer has the checksum {checksum(footer)} where the manifest says "
            f"{segment.footer_checksum}",
        )
    parsed = Footer(footer, tail, start)
    said = parsed.text(PATH_KEY)
    if said is not None and said != segment.path.encode():
        detail = f"its footer says that it is {said.decode('utf-8', 'replace')}"
        raise CorruptTopicError(segment.path, "SEG-11", detail)
    return parsed


def placeholder(filters: int) -> str:
    """As long as the checksums of this many filters: they are known only when all is written."""
    return "-" * (_DIGITS * filters)


def seal_footer(tail: bytes, empty: str) -> tuple[bytes, str]:
    """The end of a file, that is Bloom filters, page index and footer, with the checksums of the
    filters in the place of `empty`; and the checksum of the footer. If something else comes before
    the filters, `empty` stays, and no reader uses them."""
    length = _footer_bytes(tail, "")
    data, footer = tail[:-length], tail[-length:]
    lengths = filter_lengths(data, len(empty) // _DIGITS)
    if lengths:
        ends = accumulate(lengths)
        sums = "".join(checksum(data[e - n : e]) for e, n in zip(ends, lengths, strict=True))
        # Texts come after the statistics, which may contain anything.
        at = footer.rindex(empty.encode())
        footer = footer[:at] + sums.encode() + footer[at + len(sums) :]
    return data + footer, checksum(footer)


def add_filters(
    tail: bytes, tail_offset: int, filters: Sequence[tuple[ChunkId, bytes]]
) -> tuple[bytes, str]:
    """The end of a file, which begins at `tail_offset` and has no Bloom filters, with these between
    the page index and the footer; and the checksum of the footer."""
    length = _footer_bytes(tail, "")
    data, footer = tail[:-length], tail[-length:]
    ends = accumulate((len(each) for _, each in filters), initial=tail_offset + len(data))
    places = {
        chunk: FilterPlace(at, len(each)) for (chunk, each), at in zip(filters, ends, strict=False)
    }
    footer = with_filter_places(footer, places)
    return b"".join([data, *(each for _, each in filters), footer]), checksum(footer)


def checksums_text(filters: Sequence[tuple[ChunkId, bytes]]) -> str:
    """The checksums of filters, as the footer has them."""
    return "".join(checksum(each) for _, each in filters)


def _footer_bytes(tail: bytes, path: str) -> int:
    """The length of the footer, with the eight bytes that end the file."""
    if len(tail) < _END_BYTES or tail[-4:] != _MAGIC:
        raise CorruptTopicError(path, "SEG-2", "it does not end as a Parquet file does")
    return int.from_bytes(tail[-8:-4], "little") + _END_BYTES


def _read(source: pa.NativeFile, start: int, end: int) -> bytes:
    source.seek(start)
    data: bytes = source.read(end - start)
    return data
