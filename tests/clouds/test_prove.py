"""A proof on a real server, through its proxy."""

from __future__ import annotations

from typing import Any

from pylogtable.prove import ProveOptions, prove
from pylogtable.storage.base import ObjectStore
from tests.prove.test_processes import Amount


def test_a_proof_finds_nothing_wrong(
    address: str, near: dict[str, Any], objects: ObjectStore
) -> None:
    work = Amount(operations=150, faults=3)
    report = prove(
        address,
        ProveOptions(minutes=60, processes=3, seed=25),
        storage_options=near,
        on_progress=work.tell,
        stop=work.is_done,
    )
    assert report, report
    # A proxy can stand before an endpoint that the options name.
    assert ("proxy" in report.faults_by) == ("endpoint_url" in near)
    assert report.requests > 150
    assert report.records > 0
    assert list(objects.list()) == []
