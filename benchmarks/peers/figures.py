"""What is printed: a table of seconds, a table of speeds, and the bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.result import Result

APPEND = "append"
SCAN = "full scan"
RAW_SCAN = "full scan, JSON not parsed"
COLUMN = "one column"
COUNT = "count"
RANGE = "1 % range"
SMALL_APPEND = "append of 100 rows"
TRIGGER = "stream: trigger of 100 records"
LATENCY = "stream: append of 100 to commit downstream"

OURS = ("format", "LogTable")
NONE = "-"

#: Operation -> peer -> seconds.
Measured = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Bar:
    """The speed that one of our ways wants to reach: the peer's time divided by ours."""

    operation: str
    ours: str
    peer: str
    wanted: float


BARS = (
    Bar(APPEND, "format", "Delta", 1.0),
    Bar(APPEND, "LogTable", "Delta", 0.9),
    Bar(SMALL_APPEND, "format", "Delta", 1.0),
    Bar(SMALL_APPEND, "format", "Iceberg", 0.67),
    Bar(SMALL_APPEND, "LogTable", "Delta", 1.0),
    Bar(SMALL_APPEND, "LogTable", "Iceberg", 0.67),
    Bar(RANGE, "format", "Kafka", 0.67),
    Bar(RANGE, "LogTable", "Kafka", 1.0),
)


def seconds_table(measured: Measured, peers: Sequence[str]) -> str:
    rows = [
        [operation, *(f"{taken[p]:.2f}" if p in taken else NONE for p in peers)]
        for operation, taken in measured.items()
    ]
    return _markdown(["seconds", *peers], rows)


def speed_table(measured: Measured, peers: Sequence[str]) -> str:
    """The speed of each of our ways against each peer. Below 1 we are slower."""
    others = [peer for peer in peers if peer not in OURS]
    pairs = [(ours, peer) for ours in OURS for peer in others]
    rows = [
        [operation, *(_speed(taken, ours, peer) for ours, peer in pairs)]
        for operation, taken in measured.items()
    ]
    return _markdown(["speed", *(f"{ours} / {peer}" for ours, peer in pairs)], rows)


def results(measured: Measured) -> list[Result]:
    """The bars whose peers were measured."""
    found = []
    for bar in BARS:
        taken = measured.get(bar.operation, {})
        if bar.ours in taken and bar.peer in taken:
            ours, theirs = taken[bar.ours], taken[bar.peer]
            name, yardstick = f"{bar.operation}, {bar.ours}", f"{bar.peer} {theirs:.2f} s"
            found.append(Result(name, f"{ours:.2f} s", yardstick, theirs / ours, bar.wanted))
    return found


def _speed(taken: Mapping[str, float], ours: str, peer: str) -> str:
    if ours not in taken or peer not in taken:
        return NONE
    return f"{taken[peer] / taken[ours]:.2f}"


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
