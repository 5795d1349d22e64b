"""Proofs in real processes, which are killed and stopped."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import pylogtable
from pylogtable.prove import ProveOptions, page_of, prove
from pylogtable.prove.history import read_operations
from tests.depth import new_seed, rounds
from tests.prove.broken import serve_on_overwriting_store

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")


@dataclass
class Amount:
    """How much a proof has to do. A busy machine takes longer for it."""

    operations: int
    faults: int = 0
    left: bool = True

    def tell(self, seconds: float, operations: int, faults: int) -> None:
        self.left = operations < self.operations or faults < self.faults

    def is_done(self) -> bool:
        return not self.left


def test_a_sound_store_has_no_anomaly_and_nothing_is_left(tmp_path: Path) -> None:
    kinds = ("kills", "pauses", "replies")  # those that come with time, and can be waited for
    options = ProveOptions(minutes=60, processes=rounds(3, deep=8), seed=new_seed(), faults=kinds)
    work = Amount(operations=rounds(150, deep=20_000), faults=3)
    report = prove(tmp_path, options, on_progress=work.tell, stop=work.is_done)
    assert report, report
    rows = {row.operation: row for row in report.operations}
    assert rows["append"].ok > 0
    assert rows["append"].requests >= rows["append"].ok / 8
    assert report.records > 0
    assert report.faults.get("kills", 0) + report.faults.get("pauses", 0) >= 1
    assert report.evidence is None
    assert list(tmp_path.iterdir()) == []


def test_a_short_proof_ends_by_itself(tmp_path: Path) -> None:
    report = prove(tmp_path, ProveOptions(minutes=0.01, processes=1, faults=()))
    assert report, report
    assert not report.ended_early
    assert report.records > 0


def test_a_store_that_overwrites_is_found_and_the_evidence_kept(tmp_path: Path) -> None:
    options = ProveOptions(minutes=60, processes=4, faults=(), serve=serve_on_overwriting_store)
    work = Amount(operations=250)
    report = prove(tmp_path, options, on_progress=work.tell, stop=work.is_done)
    names = {anomaly.name for anomaly in report.anomalies}
    assert names & {"lost-write", "offset-reused", "two-values-at-one-offset", "broken-topic"}
    assert report.evidence is not None
    assert read_operations(Path(report.evidence.history))
    assert pylogtable.open(report.evidence.store).topics() == ["log"]
    assert pylogtable.open(tmp_path).topics() == []
    assert report.to_json()["sound"] is False
    page = page_of(report)
    assert all(name in page for name in names)
    shutil.rmtree(report.evidence.history)


def test_a_proof_that_is_stopped_at_once_has_a_report(tmp_path: Path) -> None:
    report = prove(tmp_path, ProveOptions(minutes=60, processes=1, faults=()), stop=lambda: True)
    assert report.ended_early
    assert report
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ProveOptions(minutes=0), "minutes must be above 0"),
        (ProveOptions(processes=0), "processes must be from 1"),
        (ProveOptions(faults=("fire",)), "there are no faults 'fire'"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, options: ProveOptions, message: str) -> None:
    with pytest.raises(pylogtable.InvalidRequestError, match=message):
        prove(tmp_path, options)
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_proven_are_refused(tmp_path: Path) -> None:
    with pytest.raises(pylogtable.InvalidRequestError, match="there is no directory"):
        prove(tmp_path / "nowhere")
    with pytest.raises(pylogtable.InvalidRequestError, match="lives in one process"):
        prove("memory://x")
