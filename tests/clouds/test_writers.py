"""Processes that append to one topic on a real server, while they or the server are killed."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import pylogtable
from tests.builders import appends_in
from tests.clouds.servers import LASTING, Server
from tests.depth import rounds
from tests.faults.test_many_processes import check_acks
from tests.faults.test_sigkill import kill_writers
from tests.faults.worker import PARTITIONS, SCHEMA, Crew, batch_rows, crew

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork")

WRITERS = 6
TRIES = 60


def check_all_landed_once(url: str, acks: list[dict[str, Any]], each: int) -> None:
    topic = pylogtable.open(url).topic("t")
    assert appends_in(topic) == len(acks) == WRITERS * each
    check_acks(topic, acks, {})
    expected = sorted(n for ack in acks for n in batch_rows(ack["batch"])["n"].to_pylist())
    assert sorted(topic.read(columns=["n"]).read_all()["n"].to_pylist()) == expected


def start_writers(workers: Crew, url: str, each: int) -> None:
    pylogtable.open(url).create_topic("t", PARTITIONS, SCHEMA)
    workers.order(*(("append_stubbornly", [url, 1000 * n, each, TRIES]) for n in range(WRITERS)))


def test_six_processes_append_at_once(url: str) -> None:
    each = rounds(8, deep=60)
    pylogtable.open(url).create_topic("t", PARTITIONS, SCHEMA)
    with crew() as workers:
        workers.order(*(("append_many", [url, 1000 * n, each]) for n in range(WRITERS)))
        acks, statuses = workers.until_end()
    assert statuses == [0] * WRITERS
    check_all_landed_once(url, acks, each)


def test_killed_writer_loses_and_duplicates_nothing_acknowledged(url: str) -> None:
    kill_writers(url, rounds(6, deep=100))


@pytest.mark.parametrize("server", LASTING, indirect=True)
def test_killed_server_loses_and_duplicates_nothing_acknowledged(server: Server, url: str) -> None:
    """The processes go on against the server that was started again."""
    each, kills = rounds(8, deep=60), rounds(4, deep=40)
    apart = WRITERS * each // (kills + 1)
    acks: list[dict[str, Any]] = []
    with crew() as workers:
        start_writers(workers, url, each)
        for _ in range(kills):
            answers = [workers.answer() for _ in range(apart)]
            acks += [answer for answer in answers if "batch" in answer]
            server.kill()
            server.start()
        rest, statuses = workers.until_end()
    assert statuses == [0] * WRITERS, rest
    acks += [answer for answer in rest if "batch" in answer]
    print(f"{sum(ack['repeated'] for ack in acks)} of {len(acks)} had landed without a reply")
    check_all_landed_once(url, acks, each)
