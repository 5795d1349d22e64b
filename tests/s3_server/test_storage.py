"""The contract of a store and its races, on a real S3 server."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

import pylogtable
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.remote import RemoteStore
from tests.s3_server.server import Server, options
from tests.storage.contract import StoreContract
from tests.storage.races import check_one_winner_each, race_in_process, race_in_threads


class TestServer(StoreContract):
    @pytest.fixture
    def store(self, objects: RemoteStore) -> ObjectStore:
        return objects


def test_one_winner_among_threads(objects: RemoteStore) -> None:
    check_one_winner_each(objects, race_in_threads(objects, writers=8))


def test_one_winner_among_processes(objects: RemoteStore) -> None:
    writers = 6
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as manager, ProcessPoolExecutor(writers, mp_context=spawn) as pool:
        barrier = manager.Barrier(writers)
        runs = [pool.submit(race_in_process, objects, n, barrier) for n in range(writers)]
        won = dict(run.result() for run in runs)
    check_one_winner_each(objects, won)


def test_doctor_finds_nothing_wrong(server: Server, place: str) -> None:
    report = pylogtable.diagnose(f"s3://{place}", storage_options=options(server.url))
    assert report, report
    assert {check.status for check in report.checks} == {"ok"}
