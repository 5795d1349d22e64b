"""Prove that a store can carry topics, with a probe object, and say what is wrong where it cannot.

Everything a commit relies on is tried for real: an object is put only if it is absent, also by
several at once; what was written is read and listed at once; what was deleted is gone. The probe
lies in a folder of its own, which is no topic, and is removed at the end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pylogtable.errors import LogTableError
from pylogtable.runtime import Runtime
from pylogtable.storage.base import Created, ObjectInfo, ObjectStore
from pylogtable.storage.local import LocalStore
from pylogtable.storage.locate import open_store
from pylogtable.storage.memory import MemoryStore

OK, WARNING, FAILED = "ok", "warning", "failed"

_RACERS = 4
_SKEW_MS = 60_000

_ADVICE = {
    "list": "allow listing below the store (s3:ListBucket on S3), and check the address",
    "create": "allow creating objects (s3:PutObject on S3, write permission on a disk)",
    "put-if-absent": "use a store that honours conditional puts: here writers would overwrite "
    "each other's commits",
    "race": "use a store that honours conditional puts: here writers would overwrite each other's "
    "commits",
    "read": "allow reading objects (s3:GetObject on S3), and use a store with strong consistency",
    "listed": "use a store whose listing shows what was just written: vacuum relies on it",
    "replace": "allow overwriting objects, and use a store that reads its own writes",
    "stream": "allow writing and reading larger objects (multipart uploads on S3)",
    "clock": "set the clock of this machine (NTP): ages of files and commits are told by it",
    "delete": "allow deleting objects (s3:DeleteObject on S3): vacuum and delete_topic need it",
}


@dataclass(frozen=True)
class DoctorCheck:
    """One thing that was tried; `status` is ok, warning or failed, and `advice` says what to do."""

    name: str
    status: str
    detail: str
    advice: str = ""

    def __str__(self) -> str:
        advice = f"; {self.advice}" if self.advice else ""
        return f"{self.status:<8}{self.name}: {self.detail}{advice}"


@dataclass(frozen=True)
class DoctorReport:
    """What was tried on a store, in order; true if nothing failed."""

    url: str
    checks: tuple[DoctorCheck, ...]

    def __bool__(self) -> bool:
        return all(check.status != FAILED for check in self.checks)

    def __str__(self) -> str:
        verdict = "can carry topics" if self else "cannot carry topics"
        return "\n".join([*map(str, self.checks), f"{self.url} {verdict}"])


def diagnose(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    clock: Callable[[], int] | None = None,
) -> DoctorReport:
    """Try everything that topics need of the store at this address. It raises nothing: what is
    wrong is in the report. A directory that does not exist is not made."""
    runtime = Runtime(clock=clock) if clock else Runtime()
    try:
        store = open_store(url, storage_options)
    except LogTableError as error:
        return DoctorReport(os.fspath(url), (DoctorCheck("address", FAILED, str(error)),))
    return examine(store, runtime)


def examine(store: ObjectStore, runtime: Runtime) -> DoctorReport:
    """The same for a store that is open."""
    probe = _Probe(store, runtime)
    try:
        checks = tuple(probe.checks())
    finally:
        probe.clean()
    return DoctorReport(store.url, checks)


class _Failure(Exception):
    """A check did not hold."""


class _Warning(Exception):
    """A check held, and yet."""


class _Probe:
    def __init__(self, store: ObjectStore, runtime: Runtime) -> None:
        self._root = store
        self._folder = f"_doctor-{runtime.new_id()}"
        self._store = store.below(self._folder)
        self._runtime = runtime
        self._first = f"probe {self._folder}, first\n".encode()
        self._made: list[str] = []

    def checks(self) -> Iterator[DoctorCheck]:
        """One after the other; what builds on a check that failed is not tried."""
        steps: list[tuple[str, Callable[[], str], bool]] = [
            ("place", self._place, True),
            ("list", self._list, False),
            ("create", self._create, True),
            ("read", self._read, True),
            ("put-if-absent", self._put_if_absent, False),
            ("race", self._race, False),
            ("listed", self._listed, False),
            ("replace", self._replace, False),
            ("stream", self._stream, False),
            ("clock", self._clock, False),
            ("delete", self._delete, False),
        ]
        for name, step, is_base in steps:
            advice = _ADVICE.get(name, "")
            try:
                yield DoctorCheck(name, OK, step())
            except _Warning as warning:
                yield DoctorCheck(name, WARNING, str(warning), advice)
            except (_Failure, LogTableError) as error:
                yield DoctorCheck(name, FAILED, str(error), advice)
                if is_base:
                    return

    def clean(self) -> None:
        """Whatever happened, as far as the store lets us."""
        for key in self._made:
            with suppress(LogTableError):
                self._store.delete(key)
        if isinstance(self._root, LocalStore):
            # An object store has no folders; a disk keeps the empty one.
            with suppress(OSError):
                os.rmdir(self._store.url.removeprefix("file://"))

    def _place(self) -> str:
        url = self._root.url
        if isinstance(self._root, LocalStore) and not os.path.isdir(url.removeprefix("file://")):
            raise _Failure(
                f"there is no directory {url.removeprefix('file://')}: make it, check the address, "
                "or create a topic there, which makes it"
            )
        return url

    def _list(self) -> str:
        return f"{len(self._root.list_folders())} folder(s)"

    def _create(self) -> str:
        outcome = self._put("probe", self._first)
        if outcome is Created.EXISTS:
            raise _Failure("an object with a fresh name is said to exist already")
        if outcome is Created.UNKNOWN and self._store.read("probe") != self._first:
            raise _Failure("the store did not say whether it created an object, and there is none")
        return "an object was created"

    def _read(self) -> str:
        self._expect("probe", self._first)
        return "it is read back as it was written"

    def _put_if_absent(self) -> str:
        second = self._put("probe", b"second\n")
        if second is Created.YES:
            raise _Failure("it overwrites where it was asked to put only if absent")
        self._expect("probe", self._first)
        return "a second put was refused, and changed nothing"

    def _race(self) -> str:
        bodies = [f"racer {number}\n".encode() for number in range(_RACERS)]
        with ThreadPoolExecutor(_RACERS) as pool:
            outcomes = list(pool.map(lambda body: self._put("race", body), bodies))
        winners = [body for body, how in zip(bodies, outcomes, strict=True) if how is Created.YES]
        found = self._store.read("race")
        if len(winners) > 1 or found not in (winners or bodies):
            raise _Failure(f"{len(winners)} of {_RACERS} writers at once were told they had won")
        return f"of {_RACERS} writers at once one won"

    def _listed(self) -> str:
        if "probe" not in {info.key for info in self._entries()}:
            raise _Failure("an object that can be read is not listed")
        return "what was written is listed"

    def _replace(self) -> str:
        newer = b"newer\n"
        self._made.append("hint")
        self._store.write("hint", b"older\n")
        self._store.write("hint", newer)
        self._expect("hint", newer)
        return "an object was replaced, and the new one is read"

    def _stream(self) -> str:
        data = bytes(range(256)) * 256
        self._made.append("stream")
        with self._store.open_output("stream") as sink:
            sink.write(data)
        with self._store.open_input("stream", len(data)) as source:
            source.seek(1000)
            part = source.read(500)
        if part != data[1000:1500]:
            raise _Failure("a part of an object is not what was written there")
        return "a data file was written, and a part of it read"

    def _clock(self) -> str:
        now_ms = self._runtime.clock()
        if isinstance(self._root, MemoryStore):
            return "a store in memory has none"
        times = [info.modified_ms for info in self._entries() if info.key == "stream"]
        if not times:
            raise _Warning("the probe is not listed, so its time is not known")
        skew_ms = times[0] - now_ms
        if abs(skew_ms) > _SKEW_MS:
            ahead = "ahead of" if skew_ms > 0 else "behind"
            raise _Warning(f"the store's clock is {abs(skew_ms) / 1000:.0f} s {ahead} this one")
        return f"{abs(skew_ms) / 1000:.1f} s between the store's and this one"

    def _delete(self) -> str:
        self._store.delete("probe")
        if self._store.read("probe") is not None:
            raise _Failure("an object that was deleted can still be read")
        if "probe" in {info.key for info in self._entries()}:
            raise _Failure("an object that was deleted is still listed")
        return "what was deleted is gone"

    def _put(self, key: str, data: bytes) -> Created:
        self._made.append(key)
        return self._store.create(key, data)

    def _expect(self, key: str, data: bytes) -> None:
        found = self._store.read(key)
        if found is None:
            raise _Failure("an object that was just written is not there")
        if found != data:
            raise _Failure("an object holds something else than was written last")

    def _entries(self) -> list[ObjectInfo]:
        return list(self._store.list())
