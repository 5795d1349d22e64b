"""Tests whether a store can hold topics, with probe objects, and says what to do if it cannot.

It tries the operations that commits and maintenance rely on: put-if-absent, also from several
writers at once; reading and listing right after a write; overwriting and deleting. The probes are
in a folder of their own, which is not a topic. They are removed at the end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from pylogtable.errors import LogTableError, UnsupportedFormatError
from pylogtable.operation import Threads
from pylogtable.runtime import Runtime
from pylogtable.storage.base import Created, ObjectInfo, ObjectStore, UnansweredError
from pylogtable.storage.local import LocalStore
from pylogtable.storage.open import open_store

OK, WARNING, FAILED = "ok", "warning", "failed"

# A server that looks first and writes later loses only some of its races, so one is not enough. The
# bodies are as long as a small commit: the time to take them in is the time in which a server errs.
_RACERS = 8
_RACES = 24
_RACE_BYTES = 4096
_MAX_SKEW_MS = 60_000
_NO_CONDITIONAL_PUT = (
    "use a store that honours conditional puts: on this one, writers would overwrite each other's "
    "commits"
)
_TRY_AGAIN = "try again: the store failed, so it is not known whether it does this right"


@dataclass(frozen=True)
class DoctorCheck:
    """One check of `diagnose`. `status` is "ok", "warning" or "failed"; `advice` says what to do
    about it."""

    name: str
    status: str
    detail: str
    advice: str = ""

    def __str__(self) -> str:
        advice = f"; {self.advice}" if self.advice else ""
        return f"{self.status:<8}{self.name}: {self.detail}{advice}"


@dataclass(frozen=True)
class DoctorReport:
    """The result of `diagnose`: all checks in order. It is true if none failed, and prints as a
    list of checks."""

    url: str
    checks: tuple[DoctorCheck, ...]

    def __bool__(self) -> bool:
        return all(check.status != FAILED for check in self.checks)

    def __str__(self) -> str:
        verdict = "can hold topics" if self else "cannot hold topics"
        return "\n".join([*map(str, self.checks), f"{self.url} {verdict}"])


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
        return DoctorReport(os.fspath(url), (DoctorCheck("address", FAILED, str(error)),))
    return examine(store, runtime)


def examine(store: ObjectStore, runtime: Runtime) -> DoctorReport:
    """`diagnose` for an open store."""
    probe = _Probe(store, runtime)
    try:
        checks = tuple(probe.checks())
    finally:
        probe.clean()
    return DoctorReport(store.url, checks)


_UNANSWERED = "the store does not answer: check its address and the network, and try again"


class _Failure(Exception):
    """A check failed."""


class _Warning(Exception):
    """A check passed, but something needs attention."""


class _Step(NamedTuple):
    name: str
    run: Callable[[], str]
    advice: str
    others_need_it: bool = False
    #: The advice if the store fails, where that does not show what `advice` is about.
    if_store_fails: str | None = None

    def check(self) -> DoctorCheck:
        try:
            return DoctorCheck(self.name, OK, self.run())
        except _Warning as warning:
            return DoctorCheck(self.name, WARNING, str(warning), self.advice)
        except _Failure as failure:
            return DoctorCheck(self.name, FAILED, str(failure), self.advice)
        except UnansweredError as error:
            return DoctorCheck(self.name, FAILED, str(error), _UNANSWERED)
        except UnsupportedFormatError as error:
            return DoctorCheck(self.name, FAILED, str(error))  # it says what to use instead
        except LogTableError as error:
            advice = self.advice if self.if_store_fails is None else self.if_store_fails
            return DoctorCheck(self.name, FAILED, str(error), advice)


class _Probe:
    def __init__(self, store: ObjectStore, runtime: Runtime) -> None:
        self._root = store
        self._folder = f"_doctor-{runtime.new_id()}"
        self._store = store.below(self._folder)
        self._runtime = runtime
        self._first = f"probe {self._folder}, first\n".encode()
        self._made: list[str] = []

    def checks(self) -> Iterator[DoctorCheck]:
        """Run all steps in order. A step that others build on ends the run if it fails."""
        for step in self._steps():
            check = step.check()
            yield check
            if check.status == FAILED and step.others_need_it:
                return

    def _steps(self) -> list[_Step]:
        """To add a check, write a method that returns what it found, and name it here."""
        return [
            _Step("place", self._place, "", others_need_it=True),
            _Step(
                "list",
                self._list,
                "allow listing below the store (s3:ListBucket on S3), and check the address",
            ),
            _Step(
                "create",
                self._create,
                "allow creating objects (s3:PutObject on S3, write permission on a disk)",
                others_need_it=True,
            ),
            _Step(
                "read",
                self._read,
                "allow reading objects (s3:GetObject on S3), and use a store with strong "
                "consistency",
                others_need_it=True,
            ),
            _Step(
                "put-if-absent",
                self._put_if_absent,
                _NO_CONDITIONAL_PUT,
                if_store_fails=_TRY_AGAIN,
            ),
            _Step("race", self._race, _NO_CONDITIONAL_PUT, if_store_fails=_TRY_AGAIN),
            _Step(
                "listed",
                self._listed,
                "use a store whose listing shows what was just written: vacuum relies on it",
                if_store_fails=_TRY_AGAIN,
            ),
            _Step(
                "replace",
                self._replace,
                "allow overwriting objects, and use a store that reads its own writes",
            ),
            _Step(
                "stream",
                self._stream,
                "allow writing and reading larger objects (multipart uploads on S3)",
            ),
            _Step(
                "clock",
                self._clock,
                "set the clock of this machine (NTP): the ages of files and commits depend on it",
                if_store_fails=_TRY_AGAIN,
            ),
            _Step(
                "delete",
                self._delete,
                "allow deleting objects (s3:DeleteObject on S3): vacuum and delete_topic need it",
            ),
        ]

    def clean(self) -> None:
        """Remove all probes, if the store allows it."""
        for key in self._made:
            with suppress(LogTableError):
                self._store.delete(key)
        if isinstance(self._root, LocalStore):
            # Object stores have no folders. A disk keeps the empty one.
            with suppress(OSError):
                os.rmdir(self._store.url.removeprefix("file://"))

    def _place(self) -> str:
        url = self._root.url
        if isinstance(self._root, LocalStore) and not os.path.isdir(url.removeprefix("file://")):
            raise _Failure(
                f"there is no directory {url.removeprefix('file://')}: check the address, make the "
                "directory, or create a topic, which makes it"
            )
        return url

    def _list(self) -> str:
        return f"{len(self._root.list_folders())} folder(s)"

    def _create(self) -> str:
        outcome = self._put("probe", self._first)
        if outcome is Created.EXISTS:
            raise _Failure("the store says that an object with a new name exists already")
        if outcome is Created.UNKNOWN and self._store.read("probe") != self._first:
            raise _Failure(
                "the store did not say whether it created the object, and the object is not there"
            )
        return "an object was created"

    def _read(self) -> str:
        self._expect("probe", self._first)
        return "the object was read back unchanged"

    def _put_if_absent(self) -> str:
        second = self._put("probe", b"second\n")
        if second is Created.YES:
            raise _Failure("a put-if-absent overwrote an existing object")
        self._expect("probe", self._first)
        return "a second put-if-absent was refused and changed nothing"

    def _race(self) -> str:
        start = threading.Barrier(_RACERS)
        bodies = [f"racer {n}\n".encode().ljust(_RACE_BYTES, b".") for n in range(_RACERS)]
        lost = 0
        most_winners = 0
        with Threads(_RACERS) as pool:
            for race in range(_RACES):
                key = f"race-{race}"
                self._made.append(key)
                enter = partial(self._enter_race, start, key)
                outcomes = list(pool.map(enter, bodies))
                winners = [
                    body for body, how in zip(bodies, outcomes, strict=True) if how is Created.YES
                ]
                most_winners = max(most_winners, len(winners))
                lost += len(winners) > 1 or self._store.read(key) not in (winners or bodies)
        if lost:
            raise _Failure(
                f"in {lost} of {_RACES} races the object is not that of one winner: up to "
                f"{most_winners} of {_RACERS} concurrent writers got the reply that they had won"
            )
        return f"one of {_RACERS} concurrent writers won, in each of {_RACES} races"

    def _enter_race(self, start: threading.Barrier, key: str, body: bytes) -> Created:
        start.wait()
        return self._store.create(key, body)

    def _listed(self) -> str:
        if "probe" not in {info.key for info in self._entries()}:
            raise _Failure("an object that can be read is not in the listing")
        return "a new object is in the listing"

    def _replace(self) -> str:
        newer = b"newer\n"
        self._made.append("hint")
        self._store.write("hint", b"older\n")
        self._store.write("hint", newer)
        self._expect("hint", newer)
        return "an object was overwritten, and the new content was read"

    def _stream(self) -> str:
        data = bytes(range(256)) * 256
        self._made.append("stream")
        with self._store.open_output("stream") as sink:
            sink.write(data)
        with self._store.open_input("stream", len(data)) as source:
            source.seek(1000)
            part = source.read(500)
        if part != data[1000:1500]:
            raise _Failure("a part of an object differs from what was written")
        return "a data file was written, and a part of it was read"

    def _clock(self) -> str:
        skew_ms = self._store.now_ms() - self._runtime.clock()
        if abs(skew_ms) > _MAX_SKEW_MS:
            ahead = "ahead of" if skew_ms > 0 else "behind"
            raise _Warning(
                f"the store's clock is {abs(skew_ms) / 1000:.0f} s {ahead} this machine's"
            )
        return f"the store's clock and this machine's differ by {abs(skew_ms) / 1000:.1f} s"

    def _delete(self) -> str:
        self._store.delete("probe")
        if self._store.read("probe") is not None:
            raise _Failure("an object that was deleted can still be read")
        if "probe" in {info.key for info in self._entries()}:
            raise _Failure("an object that was deleted is still in the listing")
        return "a deleted object is gone"

    def _put(self, key: str, data: bytes) -> Created:
        self._made.append(key)
        return self._store.create(key, data)

    def _expect(self, key: str, data: bytes) -> None:
        found = self._store.read(key)
        if found is None:
            raise _Failure("an object that was just written cannot be found")
        if found != data:
            raise _Failure("an object does not have the content that was written last")

    def _entries(self) -> list[ObjectInfo]:
        return list(self._store.list())
