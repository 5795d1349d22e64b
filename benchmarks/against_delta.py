"""Small appends, alone and by eight processes at once, against delta-rs in the same run."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

import pylogtable
from benchmarks.result import Result

PROCESSES = 8


def run(appends: int) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        topic = pylogtable.open(folder).create_topic("alone")
        ours = _seconds_each(appends, lambda: topic.append(_record(0, 0)))
        delta = f"{folder}/delta-alone"
        theirs = _seconds_each(
            appends, lambda: write_deltalake(delta, _record(0, 0), mode="append")
        )
        alone = Result(
            f"append of one record, {appends} times",
            f"{ours * 1e3:.1f} ms each",
            f"delta-rs {theirs * 1e3:.1f} ms each",
            theirs / ours,
            1,
        )
        url = pylogtable.open(folder).create_topic("crowd").url
        our_rate, our_lost = _crowd(_append_ours, url, appends)
        write_deltalake(f"{folder}/delta-crowd", _record(0, -1))
        their_rate, their_lost = _crowd(_append_delta, f"{folder}/delta-crowd", appends)
        crowd = Result(
            f"{PROCESSES} processes x {appends} appends",
            f"{our_rate:.0f} per second, {our_lost} lost",
            f"delta-rs {their_rate:.0f} per second, {their_lost} lost",
            our_rate / their_rate,
            1,
        )
    return [alone, crowd]


def _seconds_each(times: int, action: Callable[[], object]) -> float:
    action()
    began = time.perf_counter()
    for _ in range(times):
        action()
    return (time.perf_counter() - began) / times


def _crowd(append: Callable[[str, int, int], int], url: str, appends: int) -> tuple[float, int]:
    """Commits per second, and how many appends ended in an error."""
    context = multiprocessing.get_context("spawn")
    ready, lost = context.Barrier(PROCESSES + 1), context.Queue()
    workers = [
        context.Process(target=_work, args=(append, url, number, appends, ready, lost))
        for number in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    ready.wait()
    began = time.perf_counter()
    total_lost = sum(lost.get() for _ in workers)
    seconds = time.perf_counter() - began
    for worker in workers:
        worker.join()
    return (PROCESSES * appends - total_lost) / seconds, total_lost


def _work(
    append: Callable[[str, int, int], int],
    url: str,
    number: int,
    appends: int,
    ready: Any,
    lost: Any,
) -> None:
    ready.wait()
    lost.put(append(url, number, appends))


def _append_ours(url: str, number: int, appends: int) -> int:
    topic = pylogtable.open_topic(url)
    for turn in range(appends):
        topic.append(_record(number, turn))
    return 0


def _append_delta(url: str, number: int, appends: int) -> int:
    lost = 0
    for turn in range(appends):
        try:
            write_deltalake(url, _record(number, turn), mode="append")
        except DeltaError:
            lost += 1
    return lost


def _record(number: int, turn: int) -> pa.Table:
    return pa.table({"key": [b"%d-%d" % (number, turn)], "value": [b"v" * 80]})
