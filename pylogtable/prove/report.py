"""What a proof found, for people and programs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np

from pylogtable.presentation import Column, count_text, number_text
from pylogtable.prove.findings import Anomaly
from pylogtable.prove.history import FAILED, JOB, OK, UNKNOWN, Operation

#: Into how many parts the time of a proof is divided.
PARTS = 60


def _ms_text(ms: float) -> str:
    return f"{ms:,.0f} ms" if ms < 10_000 else f"{ms / 1000:,.1f} s"


@dataclass(frozen=True)
class OperationRow:
    """The operations of one kind. Latencies are those of operations that ended."""

    operation: str
    ok: int
    failed: int
    unknown: int
    p50_ms: Annotated[float | None, Column("p50", _ms_text)]
    p99_ms: Annotated[float | None, Column("p99", _ms_text)]
    longest_ms: Annotated[float | None, Column("longest", _ms_text)]
    requests: int


@dataclass(frozen=True)
class Moment:
    """A part of the time, from `second` on: what ended in it."""

    second: float
    ok: int
    slowest_ms: float
    kills_and_pauses: int


@dataclass(frozen=True)
class Evidence:
    """Where the operations that clients recorded, and the topic, were kept."""

    history: str
    store: str


@dataclass(frozen=True)
class ProveReport:
    """The result of a proof. It is true if there was no anomaly."""

    url: str
    seconds: float
    seed: int
    processes: int
    records: int
    operations: tuple[OperationRow, ...]
    faults: Mapping[str, int]
    faults_by: str
    requests: int
    anomalies: tuple[Anomaly, ...]
    timeline: tuple[Moment, ...]
    ended_early: bool
    evidence: Evidence | None

    def __bool__(self) -> bool:
        return not self.anomalies

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def to_json(self) -> dict[str, Any]:
        """As `--output json` prints it."""
        anomalies = [{"meaning": one.meaning, **asdict(one)} for one in self.anomalies]
        return {"sound": bool(self), **asdict(self), "anomalies": anomalies}

    @property
    def verdict(self) -> str:
        """The result in a sentence."""
        total = sum(row.ok + row.failed + row.unknown for row in self.operations)
        faults = count_text(sum(self.faults.values()), "fault")
        done = f"{count_text(total, 'operation')} and {faults} in {self.seconds:,.0f} s"
        if not self.anomalies:
            return f"no anomaly in {done}"
        return f"{count_text(len(self.anomalies), 'kind')} of anomalies in {done}"

    def lines(self) -> list[str]:
        """Everything but the table of operations."""
        faults = ", ".join(f"{number_text(n)} {kind}" for kind, n in sorted(self.faults.items()))
        per_minute = self.requests / max(self.seconds, 1e-3) * 60
        lines = [
            f"records in the topic: {number_text(self.records)}",
            f"requests: {number_text(self.requests)}, {number_text(round(per_minute))} a minute",
            f"faults ({self.faults_by}): {faults or 'none'}",
        ]
        for anomaly in self.anomalies:
            lines.append(f"{anomaly.name}, {count_text(anomaly.times, 'time')}: {anomaly.meaning}")
            for example in anomaly.examples[:3]:
                told = f" ({', '.join(example.operations)})" if example.operations else ""
                lines.append(f"  {example.sentence}{told}")
        if self.evidence is not None:
            lines.append(f"recorded operations: {self.evidence.history}")
            lines.append(f"the topic: {self.evidence.store}")
        early = ", ended early" if self.ended_early else ""
        lines.append(f"{self.url}: {self.verdict} (seed {self.seed}{early})")
        return lines


def rows_of(operations: Iterable[Operation]) -> tuple[OperationRow, ...]:
    """A row for each kind of operation. Jobs have a row for each job."""
    kinds: dict[str, list[Operation]] = {}
    for one in operations:
        name = one.asked["name"] if one.kind == JOB else one.kind
        kinds.setdefault(name, []).append(one)
    return tuple(_row(name, kinds[name]) for name in sorted(kinds))


def _row(name: str, operations: list[Operation]) -> OperationRow:
    outcomes = [one.outcome for one in operations]
    ms = [one.seconds * 1000 for one in operations if one.ended < math.inf]
    p50, p99, longest = np.percentile(ms, [50, 99, 100]).round(1).tolist() if ms else [None] * 3
    requests = sum(one.told.get("requests", 0) for one in operations)
    ok, failed, unknown = (outcomes.count(outcome) for outcome in (OK, FAILED, UNKNOWN))
    return OperationRow(name, ok, failed, unknown, p50, p99, longest, requests)


def timeline_of(
    operations: Iterable[Operation], struck: Iterable[float], began: float, seconds: float
) -> tuple[Moment, ...]:
    """What happened in each of equal parts of the time. `struck` has the times of kills and
    pauses."""
    width = max(seconds, 1e-3) / PARTS
    edges = began + width * np.arange(PARTS + 1)
    ended = [one for one in operations if one.ended < math.inf]
    at = np.clip(np.searchsorted(edges, [one.ended for one in ended]) - 1, 0, PARTS - 1)
    is_ok = np.array([one.outcome == OK for one in ended], np.bool_)
    ok = np.bincount(at[is_ok], minlength=PARTS)
    slowest = np.zeros(PARTS)
    np.maximum.at(slowest, at, [one.seconds * 1000 for one in ended])
    strikes = np.bincount(
        np.clip(np.searchsorted(edges, list(struck)) - 1, 0, PARTS - 1), minlength=PARTS
    )
    return tuple(
        Moment(
            round(part * width, 3), int(ok[part]), round(float(slowest[part]), 1), int(struck_in)
        )
        for part, struck_in in enumerate(strikes)
    )
