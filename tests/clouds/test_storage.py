"""The contract of a store and its races, on a real server."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

import pylogtable
from pylogtable.storage.base import ObjectStore
from tests.storage.contract import StoreContract
from tests.storage.races import check_one_winner_each, race_in_process, race_in_threads


class TestServer(StoreContract):
    @pytest.fixture
    def store(self, objects: ObjectStore) -> ObjectStore:
        return objects


def test_one_winner_among_threads(objects: ObjectStore) -> None:
    check_one_winner_each(objects, race_in_threads(objects, writers=8))


def test_one_winner_among_processes(objects: ObjectStore) -> None:
    writers = 6
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as manager, ProcessPoolExecutor(writers, mp_context=spawn) as pool:
        barrier = manager.Barrier(writers)
        runs = [pool.submit(race_in_process, objects, n, barrier) for n in range(writers)]
        won = dict(run.result() for run in runs)
    check_one_winner_each(objects, won)


def test_doctor_finds_nothing_wrong(address: str, near: dict[str, Any]) -> None:
    report = pylogtable.diagnose(address, storage_options=near)
    assert report, report
    assert {check.status for check in report.checks} == {"ok"}
