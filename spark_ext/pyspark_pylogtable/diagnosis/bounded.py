"""Calls of Spark that may never return, such as a job of a cluster that has no executors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import TypeVar

from pyspark.sql import SparkSession

Result = TypeVar("Result")

_serial = count()


class NoAnswer(Exception):
    """Spark has not returned in time."""


def bounded(spark: SparkSession | None, seconds: float, call: Callable[[], Result]) -> Result:
    """The result of `call`. If it takes longer, its Spark jobs are cancelled, and `NoAnswer` is
    raised. The thread that waits is left behind; it does not keep the process alive."""
    tag = f"pylogtable-doctor-{next(_serial)}"
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            if spark is not None:
                _enter(spark, tag)
            results.append(call())
        except BaseException as error:
            errors.append(error)

    def interrupt() -> None:
        if spark is not None:
            with suppress(Exception):
                spark.interruptTag(tag)

    caller = _start(run)
    caller.join(seconds)
    if results:
        return results[0]
    if errors:
        raise errors[0]
    _start(interrupt)  # nobody waits for it: a server that is gone does not answer this either
    raise NoAnswer(f"no answer in {seconds:g} s")


def _enter(spark: SparkSession, tag: str) -> None:
    """Make the session the active one of this thread, as it is in that of the caller: classic Spark
    looks there for the source of a write. And mark its jobs."""
    if not is_connect(spark):
        spark.createDataFrame([], "nothing int")
    with suppress(Exception):  # a Spark without tags
        spark.addTag(tag)


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _start(call: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=call, name="pylogtable-doctor", daemon=True)
    thread.start()
    return thread
