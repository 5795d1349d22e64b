"""Tests whether a store can hold topics, and says what to do if it cannot.

For an engine of many machines, one process leaves a probe, and the others look for it: whether they
see the same store, with rights of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from pylogtable.check.doctor_report import FAILED, DoctorCheck, DoctorReport
from pylogtable.check.store_probe import StoreProbe
from pylogtable.errors import LogTableError
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.open import open_store


def diagnose(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    clock: Callable[[], int] | None = None,
) -> DoctorReport:
    """Test whether the store at this address can hold topics. Call it before the first use of a
    store, or when commits fail.

    >>> print(pylogtable.diagnose("s3://bucket/logs"))

    It raises no errors: they are in the report. It does not create a missing directory.
    """
    runtime = Runtime(clock=clock) if clock else Runtime()
    try:
        store = open_store(url, storage_options, clock)
    except LogTableError as error:
        return DoctorReport(os.fspath(url), (_bad_address(error),))
    return examine(store, runtime)


@contextmanager
def left_probe(
    url: str, storage_options: Mapping[str, Any] | None = None, runtime: Runtime | None = None
) -> Iterator[str]:
    """Leave a probe in a folder of its own, and yield the name of the folder, for
    `diagnose_from_elsewhere` and for topics of the caller. All that is in the folder is removed at
    the end."""
    store = open_store(url, storage_options)
    probe = StoreProbe(store, runtime or Runtime())
    try:
        probe.leave()
        yield probe.folder
    finally:
        probe.clean_folder()


def diagnose_from_elsewhere(
    url: str,
    folder: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    clock: Callable[[], int] | None = None,
) -> tuple[tuple[DoctorCheck, ...], bool]:
    """The checks of another process, after one has left a probe in this folder; and whether this
    process won the race in which each creates the same object: one may."""
    runtime = Runtime(clock=clock) if clock else Runtime()
    try:
        probe = StoreProbe(open_store(url, storage_options, clock), runtime, folder)
    except LogTableError as error:
        return (_bad_address(error),), False
    checks = tuple(probe.checks_from_elsewhere())
    if any(check.status == FAILED for check in checks):
        return checks, False
    with suppress(LogTableError):
        return checks, probe.race_from_elsewhere()
    return checks, False


def _bad_address(error: LogTableError) -> DoctorCheck:
    return DoctorCheck("address", FAILED, str(error))


def examine(store: ObjectStore, runtime: Runtime) -> DoctorReport:
    """`diagnose` for an open store."""
    probe = StoreProbe(store, runtime)
    try:
        checks = tuple(probe.checks())
    finally:
        probe.clean()
    return DoctorReport(store.url, checks)
