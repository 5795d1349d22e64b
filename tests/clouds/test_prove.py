"""A proof on a real server, through its proxy."""

from __future__ import annotations

from typing import Any

from pylogtable.prove import ProveOptions, prove
from pylogtable.storage.base import ObjectStore
from tests.clouds.servers import Server
from tests.prove.test_processes import Amount


def test_a_proof_finds_nothing_wrong(
    server: Server, address: str, near: dict[str, Any], objects: ObjectStore
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
    # A proof puts a proxy before S3 only.
    assert ("proxy" in report.faults_by) == (server.scheme == "s3")
    assert report.requests > 150
    assert report.records > 0
    assert list(objects.list()) == []
