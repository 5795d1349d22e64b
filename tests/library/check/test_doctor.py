"""`diagnose` finds what is wrong with a store, says what to do, and removes its probes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import pylogtable
from pylogtable.check.doctor import diagnose_from_elsewhere, examine, left_probe
from pylogtable.check.doctor_report import DoctorReport
from pylogtable.errors import StorageError
from pylogtable.storage.base import Created, ObjectInfo, ObjectStore, UnansweredError
from pylogtable.storage.local import LocalStore
from pylogtable.storage.memory import MemoryStore
from tests.builders import T0, Clock, kafka, runtime
from tests.conftest import S3_BUCKET, S3_KEY, S3_SECRET


class _Faulty(MemoryStore):
    """A store with one fault, in all folders."""

    def below(self, prefix: str) -> MemoryStore:
        deeper = type(self)(self._name, self._full(prefix.rstrip("/")) + "/")
        deeper._space = self._space
        return deeper


class Overwriting(_Faulty):
    def create(self, key: str, data: bytes) -> Created:
        self.write(key, data)
        return Created.YES


class AsksThenWrites(_Faulty):
    """Looks first and writes later. Its window is narrow: in one race of ten, two writers are in it
    together."""

    def __init__(self, name: str | None = None, prefix: str = "") -> None:
        super().__init__(name, prefix)
        self._guard = threading.Lock()
        self._entered: Counter[str] = Counter()
        self._both_looked = threading.Barrier(2)

    def create(self, key: str, data: bytes) -> Created:
        with self._guard:
            self._entered[key] += 1
            turn, unlucky = self._entered[key], len(self._entered) % 10 == 0
        if not unlucky or turn > 2:
            return super().create(key, data)
        found = self.read(key)
        self._both_looked.wait(60)
        if found is not None:
            return Created.EXISTS
        self.write(key, data)
        return Created.YES


class ReadOnly(_Faulty):
    def create(self, key: str, data: bytes) -> Created:
        raise StorageError(f"cannot create {key}: AccessDenied")


class Swallowing(_Faulty):
    def create(self, key: str, data: bytes) -> Created:
        return Created.UNKNOWN


class SlowInRaces(_Faulty):
    def create(self, key: str, data: bytes) -> Created:
        if key.startswith("race"):
            raise StorageError(f"cannot create {key}: ReadTimeout")
        return super().create(key, data)


class Unlisted(_Faulty):
    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return iter(())


class NoListRight(_Faulty):
    def list_folders(self) -> list[str]:
        raise StorageError("cannot list: AccessDenied")


class Silent(_Faulty):
    def list_folders(self) -> list[str]:
        raise UnansweredError("cannot list: no answer in 120 s")


class NoRights(_Faulty):
    """It lists, and refuses the rest."""

    def list_folders(self) -> list[str]:
        raise StorageError("cannot list: AccessDenied")

    def create(self, key: str, data: bytes) -> Created:
        raise StorageError("cannot create: AccessDenied")


class Undeletable(_Faulty):
    def delete(self, key: str) -> None:
        if key == "probe":
            raise StorageError(f"cannot delete {key}: AccessDenied")
        super().delete(key)


class Immortal(_Faulty):
    def delete(self, key: str) -> None:
        """Silently does nothing."""


class Stale(_Faulty):
    def write(self, key: str, data: bytes) -> None:
        if self.read(key) is None:
            super().write(key, data)


def statuses(report: DoctorReport) -> dict[str, str]:
    return {check.name: check.status for check in report.checks}


@pytest.mark.parametrize(
    ("store", "failing", "words"),
    [
        (Overwriting(), {"put-if-absent", "race"}, "conditional puts"),
        (AsksThenWrites(), {"race"}, "got the reply that they had won"),
        (ReadOnly(), {"create"}, "AccessDenied; allow creating objects (s3:PutObject"),
        (Swallowing(), {"create"}, "the object is not there"),
        (Unlisted(), {"listed"}, "vacuum relies on it"),
        (NoListRight(), {"list"}, "s3:ListBucket"),
        (Undeletable(), {"delete"}, "s3:DeleteObject"),
        (Immortal(), {"delete"}, "can still be read"),
        (Stale(), {"replace"}, "the content that was written last"),
    ],
    ids=lambda thing: type(thing).__name__ if isinstance(thing, ObjectStore) else "",
)
def test_faulty_store_fails_the_check_of_its_fault(
    store: ObjectStore, failing: set[str], words: str
) -> None:
    report = examine(store, runtime())
    assert not report
    assert {name for name, status in statuses(report).items() if status == "failed"} == failing
    assert words in str(report)
    assert str(report).endswith("cannot hold topics")


@pytest.mark.parametrize(
    ("scheme", "words", "others"),
    [
        ("s3", ["s3:ListBucket", "s3:PutObject"], ["roles/", "Blob"]),
        ("gs", ["roles/storage.objectUser"] * 2, ["s3:", "Blob"]),
        ("abfss", ["Storage Blob Data Contributor"] * 2, ["s3:", "roles/"]),
        ("file", ["write permission on the directory"] * 2, ["s3:", "roles/", "Blob"]),
    ],
)
def test_advice_is_in_the_words_of_the_cloud(
    scheme: str, words: list[str], others: list[str]
) -> None:
    class ThisCloud(NoRights):
        url = f"{scheme}://bucket/logs"

    report = examine(ThisCloud(), runtime())
    failed = [check for check in report.checks if check.status == "failed"]
    assert [check.name for check in failed] == ["list", "create"]
    for check, word in zip(failed, words, strict=True):
        assert word in check.advice
    assert not [other for other in others if other in str(report)]


def test_store_that_does_not_answer_is_asked_once() -> None:
    """Each further check would wait as long."""
    report = examine(Silent(), runtime())
    assert not report
    assert list(statuses(report)) == ["place", "list"]
    assert "does not answer" in report.checks[-1].advice


def test_report_is_a_table_in_a_notebook() -> None:
    class Hostile(NoListRight):
        url = "memory://<b>"

    html = examine(Hostile(), runtime())._repr_html_()
    assert html.count("<tr>") == 1 + 11
    assert "memory://&lt;b&gt; cannot hold topics" in html
    assert "<td>list</td><td>failed</td><td>cannot list: AccessDenied</td>" in html


def test_another_process_sees_the_probe_and_one_wins_the_race(tmp_path: Path) -> None:
    with left_probe(str(tmp_path)) as folder:
        found = [diagnose_from_elsewhere(str(tmp_path), folder) for _ in range(3)]
    for checks, _ in found:
        assert [(check.name, check.status) for check in checks] == [
            ("list", "ok"),
            ("read", "ok"),
            ("put-if-absent", "ok"),
            ("clock", "ok"),
        ]
    assert [won for _, won in found] == [True, False, False]
    assert list(tmp_path.iterdir()) == []


def test_another_process_with_another_disk_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with left_probe(str(tmp_path)) as folder:
        checks, won = diagnose_from_elsewhere(str(tmp_path / "other"), folder)
    assert not won
    assert [(check.name, check.status) for check in checks] == [("list", "ok"), ("read", "failed")]
    assert "different places" in checks[-1].detail
    assert "a path that all machines share" in checks[-1].advice


def test_folder_of_the_probe_is_removed_with_all_in_it(tmp_path: Path) -> None:
    with left_probe(str(tmp_path)) as folder:
        topic = pylogtable.open(tmp_path / folder).create_topic("t")
        topic.append(kafka(["a"]))
        assert topic.count() == 1
    assert list(tmp_path.iterdir()) == []


def test_store_that_fails_in_a_check_is_not_blamed_for_more() -> None:
    """A time-out does not show that writers overwrite each other."""
    report = examine(SlowInRaces(), runtime())
    (race,) = (check for check in report.checks if check.status == "failed")
    assert (race.name, race.detail) == ("race", "cannot create race-0: ReadTimeout")
    assert "try again" in race.advice
    assert "overwrite" not in str(race)


def test_good_store_passes_and_is_left_unchanged() -> None:
    store = MemoryStore(clock=Clock())
    store.write("t/x", b"x")
    report = examine(store, runtime())
    assert report
    assert set(statuses(report).values()) == {"ok"}
    assert [info.key for info in store.list()] == ["t/x"]


def test_probes_are_removed_if_a_check_fails() -> None:
    store = Unlisted()
    examine(store, runtime())
    assert [info.key for info in MemoryStore.list(store)] == []


def test_clock_skew_is_a_warning(tmp_path: object) -> None:
    report = examine(LocalStore(str(tmp_path)), runtime(Clock(T0)))
    assert report
    (clock,) = (check for check in report.checks if check.name == "clock")
    assert clock.status == "warning"
    assert "ahead of this machine's" in clock.detail
    assert "NTP" in clock.advice


def test_unsupported_address_is_reported() -> None:
    report = pylogtable.diagnose("ftp://host/x")
    assert not report
    assert statuses(report) == {"address": "failed"}


def test_diagnose_on_s3(s3_endpoint: str) -> None:
    options = {"key": S3_KEY, "secret": S3_SECRET, "endpoint_url": s3_endpoint}
    report = pylogtable.diagnose(f"s3://{S3_BUCKET}/doctor", storage_options=options)
    found = statuses(report)
    # moto looks first and writes later. Whether it errs in these races is a matter of luck.
    found.pop("race")
    assert set(found.values()) == {"ok"}
    store = pylogtable.open(f"s3://{S3_BUCKET}/doctor", storage_options=options)
    assert list(store._store.list()) == []
    missing = pylogtable.diagnose("s3://no-such-bucket/x", storage_options=options)
    assert statuses(missing) == {"place": "ok", "list": "failed"}
    missing_at = f"does not exist at {s3_endpoint}: create it, or check the address"
    assert missing.checks[-1].detail.endswith(missing_at)
    assert missing.checks[-1].advice == ""
    assert S3_SECRET not in str(missing)
