"""The shape of a Parquet footer that has no checksum, checked before Arrow parses it. Pure.

A footer of an older writer, or of another one, may be damaged without anybody knowing. Some damage
ends the process inside of Arrow, where no exception can be caught: a row group with fewer columns
than the schema, a column of another type, histograms of another length than the levels of their
column. Only these are looked for here. Everything else Arrow refuses by itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pylogtable.format.thrift import Thrift

# After the metadata: its length, and "PAR1".
_END_BYTES = 8

# Field ids of parquet.thrift.
_SCHEMA, _ROW_GROUPS = 2, 4
_TYPE, _REPETITION, _CHILDREN = 1, 3, 5
_COLUMNS, _CHUNK_METADATA = 1, 3
_SIZES, _REPETITION_LEVELS, _DEFINITION_LEVELS = 16, 2, 3
_OPTIONAL, _REPEATED = 1, 2
_UNENCODED_BYTES, _BYTE_ARRAY = 1, 6


class _Leaf(NamedTuple):
    """A column without children: its physical type, and its greatest levels."""

    type: Any
    repetition: int
    definition: int


def shape_fault(footer: bytes) -> str | None:
    """Why Arrow must not be given a file with this footer; None if it may parse it. `footer` is the
    end of the file, from the metadata on, or more of it."""
    length = int.from_bytes(footer[-_END_BYTES:-4], "little")
    if len(footer) < length + _END_BYTES:
        return "its footer is longer than the file"
    try:
        metadata = Thrift(footer[-length - _END_BYTES : -_END_BYTES]).struct()
        leaves = _leaves(metadata[_SCHEMA])
        for group in metadata[_ROW_GROUPS]:
            chunks = group[_COLUMNS]
            if len(chunks) != len(leaves):
                return f"a row group has {len(chunks)} columns, and the schema {len(leaves)}"
            for chunk, leaf in zip(chunks, leaves, strict=True):
                fault = _chunk_fault(chunk[_CHUNK_METADATA], leaf)
                if fault is not None:
                    return fault
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        return f"it is not the metadata of a Parquet file: {type(error).__name__} {error}"
    return None


def _chunk_fault(chunk: dict[int, Any], leaf: _Leaf) -> str | None:
    if chunk[_TYPE] != leaf.type:
        return f"a column has the type {chunk[_TYPE]} in a row group, and {leaf.type} in the schema"
    sizes = chunk.get(_SIZES, {})
    if _UNENCODED_BYTES in sizes and leaf.type != _BYTE_ARRAY:
        return "a column of numbers has a size of texts"
    for at, most in ((_REPETITION_LEVELS, leaf.repetition), (_DEFINITION_LEVELS, leaf.definition)):
        counts = sizes.get(at, [])
        if len(counts) not in (0, most + 1):
            return f"a histogram has {len(counts)} numbers, and its column {most + 1} levels"
        if any(count is not None for count in counts):
            return "a histogram is not of 64-bit numbers"
    return None


def _leaves(schema: list[dict[int, Any]]) -> list[_Leaf]:
    """The columns without children, in order. `schema` lists all nodes, each before its children,
    and begins with the root."""
    found: list[_Leaf] = []
    open_nodes = [(schema[0][_CHILDREN], 0, 0)]
    for node in schema[1:]:
        while open_nodes[-1][0] == 0:
            open_nodes.pop()
        left, repetition, definition = open_nodes[-1]
        open_nodes[-1] = (left - 1, repetition, definition)
        kind = node.get(_REPETITION)
        repetition += kind == _REPEATED
        definition += kind in (_OPTIONAL, _REPEATED)
        if node.get(_CHILDREN):
            open_nodes.append((node[_CHILDREN], repetition, definition))
        else:
            found.append(_Leaf(node[_TYPE], repetition, definition))
    if any(left for left, _, _ in open_nodes):
        raise ValueError("the schema ends too early")
    return found
