"""The positions that `consume --from` and `--to` take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from pylogtable import InvalidRequestError, OffsetOutOfRangeError
from pylogtable.cli.parse import parse_position

if TYPE_CHECKING:
    from pylogtable import Bound, View

#: The offset of each partition.
Positions = dict[int, int]


def start_positions(
    view: View, text: str, partitions: Sequence[int] | None, stored: Positions | None
) -> Positions:
    """The positions that `--from` means. `stored` has the positions of the consumer group, if
    any."""
    if text == "stored" and stored is not None:
        firsts = view.ranges(partitions)
        return {number: stored.get(number, first) for number, (first, _) in firsts.items()}
    ranges = _ranges(view, partitions, start=_parse_bound(text, "--from"))
    return {number: start for number, (start, _) in ranges.items()}


def end_positions(view: View, text: str, partitions: Sequence[int] | None) -> Positions:
    """The positions that `--to` means."""
    ranges = _ranges(view, partitions, end=_parse_bound(text, "--to"))
    return {number: end for number, (_, end) in ranges.items()}


def _ranges(
    view: View, partitions: Sequence[int] | None, start: Bound = None, end: Bound = None
) -> dict[int, tuple[int, int]]:
    try:
        return view.ranges(partitions, start, end)
    except OffsetOutOfRangeError as error:
        raise InvalidRequestError(
            f"offset {error.requested} of partition {error.partition} is out of range: available "
            f"offsets are [{error.log_start}, {error.end}); give one of these, earliest or latest, "
            "or choose with --partition"
        ) from None


def _parse_bound(text: str, option: str) -> Bound:
    """A position, or positions by partition such as `0:100,1:latest`. kcat writes times with a
    letter before the @."""
    if not re.match(r"[0-9]+:", text):
        return parse_position(re.sub(r"^[se]@", "@", text), option)
    pairs = [pair.partition(":") for pair in text.split(",")]
    if not all(number.isdecimal() for number, _, _ in pairs):
        raise click.BadParameter(f"{text!r} is not a list such as 0:100,1:200", param_hint=option)
    by_partition = {int(number): parse_position(at, option) for number, _, at in pairs}
    if len(by_partition) != len(pairs):
        raise click.BadParameter(f"{text!r} names a partition twice", param_hint=option)
    return by_partition
