"""A proof on a real server, through its proxy."""

from __future__ import annotations

from pylogtable.prove import ProveOptions, prove
from pylogtable.storage.open import open_store
from tests.prove.test_processes import Amount
from tests.s3_server.server import Server, options


def test_a_proof_finds_nothing_wrong(server: Server, place: str) -> None:
    work = Amount(operations=150, faults=3)
    report = prove(
        f"s3://{place}",
        ProveOptions(minutes=60, processes=3, seed=25),
        storage_options=options(server.url),
        on_progress=work.tell,
        stop=work.is_done,
    )
    assert report, report
    assert report.faults_by == "a proxy before the endpoint"
    assert report.requests > 150
    assert report.records > 0
    assert list(open_store(f"s3://{place}", options(server.url)).list()) == []
