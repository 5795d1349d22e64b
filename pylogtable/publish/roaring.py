"""Sets of offsets and of row numbers, as roaring bitmaps. Only this module imports pyroaring, and
only when a table with `publish.view=latest` is written or removed."""

from __future__ import annotations

import array
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from pylogtable.errors import InvalidRequestError

#: A `BitMap64` of pyroaring: a set of numbers that are not negative.
Numbers = Any
#: Sets of offsets by partition. A partition that is not there has none.
Offsets = Mapping[int, Numbers]
Int64s = npt.NDArray[np.int64]

#: A bitmap of a range has a container for each 65,536 numbers. If a range is longer than so many
#: for each number that is found in it, these are taken one by one.
RANGE_PER_NUMBER = 1024


def need_pyroaring() -> None:
    """Raise if pyroaring is not installed."""
    try:
        import pyroaring  # noqa: F401
    except ImportError as error:
        raise InvalidRequestError(
            "to publish a topic with publish.view=latest, or to read such a table, pyroaring is "
            "needed: pip install 'pylogtable[latest]'"
        ) from error


def numbers(values: Int64s | None = None) -> Numbers:
    """The set of these numbers; the empty set without any."""
    need_pyroaring()
    from pyroaring import BitMap64

    if values is None or not len(values):
        return BitMap64()
    plain = array.array("Q")
    plain.frombytes(values.astype(np.uint64).tobytes())
    return BitMap64(plain)


def sorted_array(found: Numbers) -> Int64s:
    """The numbers of a set, in order."""
    return np.frombuffer(found.to_array(), dtype=np.uint64).astype(np.int64)


def within(found: Numbers, low: int, high: int) -> Numbers:
    """The numbers in `[low, high)`. The cost is in proportion to how many they are, and not to the
    range: a segment with given offsets may claim all of them [LOG-11]."""
    from pyroaring import BitMap64

    count = found.range_cardinality(low, high)
    if high - low <= count * RANGE_PER_NUMBER:
        return found & BitMap64(range(low, high))
    some = islice(found.iter_equal_or_larger(low), count)
    return numbers(np.fromiter(some, dtype=np.int64, count=count))


def union(sets: Iterable[Numbers]) -> Numbers:
    """The numbers that are in one of the sets."""
    united = numbers()
    for one in sets:
        united |= one
    return united


def to_bytes(found: Numbers) -> bytes:
    """The portable form for numbers of 64 bits, as the roaring format specification has it."""
    packed = found.copy()
    packed.run_optimize()
    return bytes(packed.serialize())


def from_bytes(data: bytes) -> Numbers:
    """The set in such bytes. Raises `ValueError` if they are damaged."""
    need_pyroaring()
    from pyroaring import BitMap64

    return BitMap64.deserialize(data)
