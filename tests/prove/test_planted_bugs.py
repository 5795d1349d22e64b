"""A proof finds stores that lie, and libraries that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pylogtable
from pylogtable.errors import CommitUnknownError
from pylogtable.groups.consumer import Consumer
from pylogtable.prove.checker import check
from pylogtable.runtime import Runtime
from pylogtable.storage.base import Created
from tests.prove import broken
from tests.prove.recorded import READERS, WHO, record

OPEN_STORE = "pylogtable.prove.client.open_store"


def found(
    folder: Path, rounds: int = 12, roles: Sequence[str] = (*WHO, *READERS), *, faults: bool = False
) -> set[str]:
    return {anomaly.name for anomaly in check(*record(folder, rounds, roles, faults=faults))}


def test_a_store_that_forgets_what_it_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OPEN_STORE, broken.opening(broken.ForgetfulStore))
    assert "lost-write" in found(tmp_path, 12, ["append"] * 3)


def test_a_store_whose_reads_are_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPEN_STORE, broken.opening(broken.StaleStore))
    assert "stale-read" in found(tmp_path, 12, ["append", "reader"])


def test_a_library_that_tries_again_after_an_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes an unknown outcome for a lost race, and plans its commit again."""

    def hasty(
        create: Callable[[], Created],
        read_commit_id: Callable[[], str | None],
        unknown: CommitUnknownError,
        runtime: Runtime,
    ) -> bool:
        return create() is Created.YES

    monkeypatch.setattr("pylogtable.log.topic_log.put_numbered", hasty)
    names = found(tmp_path, 100, ["append", "append"], faults=True)
    assert names & {"duplicate", "failed-write-landed"}


def test_a_library_that_appends_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once = pylogtable.Topic.append

    def twice(self: pylogtable.Topic, *given: Any, **named: Any) -> pylogtable.AppendResult:
        once(self, *given, **named)
        return once(self, *given, **named)

    monkeypatch.setattr(pylogtable.Topic, "append", twice)
    assert "duplicate" in found(tmp_path, 3, ["append"])


def test_a_reader_that_skips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pylogtable.Topic.read

    def skipping(self: pylogtable.Topic, *given: Any, **named: Any) -> pa.RecordBatchReader:
        table = whole(self, *given, **named).read_all()
        return table.slice(0, max(0, table.num_rows - 1)).to_reader()

    monkeypatch.setattr(pylogtable.Topic, "read", skipping)
    assert found(tmp_path, 12, ["append", "reader"]) & {"stale-read", "poll-skipped"}


def test_a_consumer_that_skips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Consumer.poll

    def skipping(self: Consumer, *given: Any, **named: Any) -> pa.Table:
        return whole(self, *given, **named).slice(1)

    monkeypatch.setattr(Consumer, "poll", skipping)
    assert found(tmp_path, 12, ["append", "consumer"]) >= {"poll-skipped", "unread-position"}


def test_members_that_share_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every member reads every partition, and nobody checks who commits."""
    everything = (0, 1, 2, 3)
    monkeypatch.setattr("pylogtable.groups.membership_plan.owned", lambda *_: everything)
    monkeypatch.setattr("pylogtable.groups.dynamic_member.owned", lambda *_: everything)
    monkeypatch.setattr("pylogtable.groups.membership_plan._check_owned", lambda *_: None)
    names = found(tmp_path, 20, ["append", "append", "member", "member"])
    assert names & {"two-owners", "poll-went-back"}
