"""One row of a benchmark: a measurement, its yardstick from the same run, and the bar."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """`ratio` has to be at least `wanted`, or at most `wanted` if `at_most` is true. Where the name
    states a unit, such as commits per second, `ratio` is that number instead."""

    name: str
    measured: str
    yardstick: str
    ratio: float
    wanted: float
    at_most: bool = False

    @property
    def reached(self) -> bool:
        return self.ratio <= self.wanted if self.at_most else self.ratio >= self.wanted


def print_table(results: list[Result]) -> None:
    header = ("benchmark", "measured", "yardstick", "ratio", "wanted", "")
    rows = [
        (
            r.name,
            r.measured,
            r.yardstick,
            f"{r.ratio:.2f}",
            f"{'<=' if r.at_most else '>='} {r.wanted:g}",
            "reached" if r.reached else "MISSED",
        )
        for r in results
    ]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, tuple("-" * width for width in widths), *rows]:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
