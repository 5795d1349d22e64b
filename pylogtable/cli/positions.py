"""The positions that `consume --from` and `--to` take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from pylogtable import InvalidRequestError
from pylogtable.cli.parse import to_time

if TYPE_CHECKING:
    from pylogtable import View

#: The offset of each partition.
Positions = dict[int, int]


def start_positions(
    view: View, text: str, partitions: Sequence[int] | None, stored: Positions | None
) -> Positions:
    """The positions that `--from` means. `stored` has the positions of the consumer group, if
    any."""
    firsts, _ = _bounds(view, partitions)
    if text == "stored" and stored is not None:
        return {number: stored.get(number, first) for number, first in firsts.items()}
    return _resolve(view, text, partitions, "--from")


def end_positions(view: View, text: str, partitions: Sequence[int] | None) -> Positions:
    """The positions that `--to` means."""
    return _resolve(view, text, partitions, "--to")


def _bounds(view: View, partitions: Sequence[int] | None) -> tuple[Positions, Positions]:
    """The log start and the end of each partition; raises if a partition does not exist."""
    firsts = {number: start for number, (start, _) in view.ranges(partitions).items()}
    ends = view.end_offsets
    return firsts, {number: ends[number] for number in firsts}


def _resolve(view: View, text: str, partitions: Sequence[int] | None, option: str) -> Positions:
    firsts, ends = _bounds(view, partitions)
    if text == "earliest":
        return firsts
    if text == "latest":
        return ends
    if re.fullmatch(r"\d+", text):
        return _checked(view, dict.fromkeys(firsts, int(text)))
    if re.fullmatch(r"-\d+", text):
        return {number: max(firsts[number], ends[number] + int(text)) for number in firsts}
    if re.fullmatch(r"\d+:\d+(,\d+:\d+)*", text):
        pairs = [pair.split(":") for pair in text.split(",")]
        given = {int(number): int(offset) for number, offset in pairs}
        if len(given) != len(pairs):
            raise click.BadParameter(f"{text!r} names a partition twice", param_hint=option)
        # Raises if a partition does not exist.
        view.ranges(list(given))
        others = firsts if option == "--from" else ends
        return _checked(view, {number: given.get(number, others[number]) for number in firsts})
    try:
        when = to_time(re.sub(r"^[se]@", "@", text))
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a position: write earliest, latest, an offset, -N, 0:100,1:200, a "
            "time such as 2024-05-01T12:00:00Z, or @ and milliseconds",
            param_hint=option,
        ) from None
    found = view.offsets_for_time(when, list(firsts))
    return {number: ends[number] if at is None else at for number, at in found.items()}


def _checked(view: View, positions: Positions) -> Positions:
    firsts, ends = view.start_offsets, view.end_offsets
    for number, position in positions.items():
        first, end = firsts[number], ends[number]
        if not first <= position <= end:
            raise InvalidRequestError(
                f"offset {position} of partition {number} is out of range: available offsets are "
                f"[{first}, {end}); give one of these, earliest or latest, or choose with "
                "--partition"
            )
    return positions
