"""The checks of a store, with probe objects.

They try the operations that commits and maintenance rely on: put-if-absent, also from several
writers at once; reading and listing right after a write; overwriting and deleting. The probes are
in a folder of their own, which is not a topic. They are removed at the end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from pylogtable.check.doctor_report import FAILED, OK, WARNING, DoctorCheck
from pylogtable.errors import InvalidRequestError, LogTableError, UnsupportedFormatError
from pylogtable.operation import Threads
from pylogtable.runtime import Runtime
from pylogtable.storage.base import Created, ObjectInfo, ObjectStore, UnansweredError
from pylogtable.storage.credentials import CredentialsError
from pylogtable.storage.local import LocalStore
from pylogtable.storage.wire import MissingBucketError

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
_SHARED = "use a path that all machines share, or an object store (s3://, gs://, abfs://)"
#: What an operator grants for all that topics need. S3 has an action for each request instead.
_ROLES = {
    "gs": "the role roles/storage.objectUser on the bucket",
    **dict.fromkeys(("abfs", "abfss"), "the role Storage Blob Data Contributor on the container"),
    "file": "write permission on the directory",
}
_UNANSWERED = "the store does not answer: check its address and the network, and try again"


class _Failure(Exception):
    """A check failed."""


class _Warning(Exception):
    """A check passed, but something needs attention."""


#: Errors of the address, the options or the credentials.
_SAYS_WHAT_TO_DO = (UnsupportedFormatError, InvalidRequestError, CredentialsError)


class _Step(NamedTuple):
    name: str
    run: Callable[[], str]
    advice: str
    others_need_it: bool = False
    #: The advice if the store fails, where that does not show what `advice` is about.
    if_store_fails: str | None = None

    def check(self) -> tuple[DoctorCheck, bool]:
        """The result, and whether it ends the run: others build on it, or would fail as well."""
        try:
            return DoctorCheck(self.name, OK, self.run()), False
        except _Warning as warning:
            return DoctorCheck(self.name, WARNING, str(warning), self.advice), False
        except _Failure as failure:
            return self._failed(str(failure), self.advice), self.others_need_it
        except UnansweredError as error:
            return self._failed(str(error), _UNANSWERED), True
        except LogTableError as error:
            is_missing = isinstance(error.__cause__, MissingBucketError)
            if is_missing or isinstance(error, _SAYS_WHAT_TO_DO):
                return self._failed(str(error)), True  # it says what to do
            advice = self.advice if self.if_store_fails is None else self.if_store_fails
            return self._failed(str(error), advice), self.others_need_it

    def _failed(self, detail: str, advice: str = "") -> DoctorCheck:
        return DoctorCheck(self.name, FAILED, detail, advice)


class StoreProbe:
    """The probes of one run. In another process, `folder` is where the first one left its own."""

    def __init__(self, store: ObjectStore, runtime: Runtime, folder: str | None = None) -> None:
        self._root = store
        self.folder = folder or f"_doctor-{runtime.new_id()}"
        self._store = store.below(self.folder)
        self._runtime = runtime
        self._first = f"probe {self.folder}, first\n".encode()
        self._made: list[str] = []

    def checks(self) -> Iterator[DoctorCheck]:
        return self._run(self._steps())

    def checks_from_elsewhere(self) -> Iterator[DoctorCheck]:
        return self._run(self._steps_from_elsewhere())

    def _run(self, steps: Sequence[_Step]) -> Iterator[DoctorCheck]:
        """Run the steps in order, to the end or to the one that ends the run."""
        for step in steps:
            check, ends_run = step.check()
            yield check
            if ends_run:
                return

    def leave(self) -> None:
        """Put the probe that other processes look for."""
        self._store.create("probe", self._first)

    def race_from_elsewhere(self) -> bool:
        """Whether this process created an object that others try to create as well."""
        body = f"{self._runtime.new_id()}\n".encode()
        outcome = self._store.create("race", body)
        return outcome is Created.YES or self._store.read("race") == body

    def _steps(self) -> list[_Step]:
        """To add a check, write a method that returns what it found, and name it here."""
        return [
            _Step("place", self._place, "", others_need_it=True),
            self._list_step(),
            _Step(
                "create",
                self._create,
                f"allow creating objects ({self._right('s3:PutObject')})",
                others_need_it=True,
            ),
            _Step(
                "read",
                self._read,
                f"allow reading objects ({self._right('s3:GetObject')}), and use a store with "
                "strong consistency",
                others_need_it=True,
            ),
            self._put_if_absent_step(),
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
                f"allow overwriting objects ({self._right('s3:PutObject')}), and use a store that "
                "reads its own writes",
            ),
            _Step(
                "stream",
                self._stream,
                "allow writing and reading larger objects "
                f"({self._right('s3:PutObject, also for multipart uploads')})",
            ),
            self._clock_step(),
            _Step(
                "delete",
                self._delete,
                f"allow deleting objects ({self._right('s3:DeleteObject')}): vacuum and "
                "delete_topic need it",
            ),
        ]

    def _steps_from_elsewhere(self) -> list[_Step]:
        return [
            self._list_step(),
            _Step(
                "read",
                self._read_from_elsewhere,
                _SHARED,
                others_need_it=True,
                if_store_fails=f"allow reading objects ({self._right('s3:GetObject')})",
            ),
            self._put_if_absent_step(),
            self._clock_step(),
        ]

    def _list_step(self) -> _Step:
        right = self._right("s3:ListBucket")
        return _Step(
            "list", self._list, f"check the address, and allow listing below the store ({right})"
        )

    def _put_if_absent_step(self) -> _Step:
        return _Step(
            "put-if-absent", self._put_if_absent, _NO_CONDITIONAL_PUT, if_store_fails=_TRY_AGAIN
        )

    def _clock_step(self) -> _Step:
        return _Step(
            "clock",
            self._clock,
            "set the clock of this machine (NTP): the ages of files and commits depend on it",
            if_store_fails=_TRY_AGAIN,
        )

    def _right(self, s3_action: str) -> str:
        """What the operator of this store has to grant."""
        return _ROLES.get(self._root.url.partition("://")[0], s3_action)

    def clean(self) -> None:
        """Remove all probes, if the store allows it."""
        for key in self._made:
            with suppress(LogTableError):
                self._store.delete(key)
        if isinstance(self._root, LocalStore):
            # Object stores have no folders. A disk keeps the empty one.
            with suppress(OSError):
                os.rmdir(self._store.url.removeprefix("file://"))

    def clean_folder(self) -> None:
        """Remove all that is in the folder, by whomever, if the store allows it."""
        with suppress(LogTableError):
            self._store.delete_many([info.key for info in self._entries()])
        if isinstance(self._root, LocalStore):
            self._root.remove_empty_folders(f"{self.folder}/")

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

    def _read_from_elsewhere(self) -> str:
        if self._store.read("probe") != self._first:
            raise _Failure(
                f"the object that the first process wrote is not at {self._store.url} here: these "
                "are different places"
            )
        return "the object of the first process was read"

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
