"""A mount without hard links and renames, as the volumes of Databricks: topics on it are read, and
every way to write one is refused."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import pylogtable
from pylogtable.errors import UnsupportedFormatError
from pylogtable.storage.local import LocalStore
from pylogtable.storage.local_files import failure_of
from tests.builders import IN_FILES
from tests.storage.fuse_volume import mounted

ROWS = pa.table({"key": ["a", "b"], "value": ["1", "2"]})
MANY = pa.table({"key": [str(n) for n in range(1000)], "value": ["x" * 100] * 1000})


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A mounted volume with two topics that somebody copied there: one in commits, one in files."""
    folder = tmp_path_factory.mktemp("folder")
    store = pylogtable.open(folder)
    store.create_topic("small").append(ROWS)
    store.create_topic("large", config=IN_FILES).append(MANY)
    with mounted(folder, tmp_path_factory.mktemp("volume")) as mount:
        yield mount


def all_files(volume: Path) -> list[str]:
    return sorted(str(path) for path in volume.rglob("*") if path.is_file())


def test_topics_there_are_read(volume: Path) -> None:
    store = pylogtable.open(volume)
    assert store.topics() == ["large", "small"]
    assert store.topic("small").read(columns=["key", "value"]).read_all().num_rows == 2
    assert store.topic("large").count() == 1000
    assert store.topic("large").latest(keys=["7"]).num_rows == 1
    assert store.topic("large").verify(data=True).sound


def test_look_at_a_file_is_a_request(volume: Path) -> None:
    """So who waits for a commit does not look all the time."""
    assert LocalStore(volume).peek("small/_manifest/00000000000000000000.json") is None


@pytest.mark.parametrize("topic", ["small", "large"])
def test_appends_are_refused_and_leave_nothing(volume: Path, topic: str) -> None:
    before = all_files(volume)
    opened = pylogtable.open(volume).topic(topic)
    for rows in (ROWS, MANY):
        with pytest.raises(UnsupportedFormatError, match="can be read, not written"):
            opened.append(rows)
    assert all_files(volume) == before
    assert opened.count() == pylogtable.open(volume).topic(topic).count()


def test_no_topic_is_created_and_none_deleted(volume: Path) -> None:
    before = all_files(volume)
    store = pylogtable.open(volume)
    with pytest.raises(UnsupportedFormatError, match="no hard links") as caught:
        store.create_topic("new")
    assert "put an object only if it is absent" in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(UnsupportedFormatError):
        store.delete_topic("small")
    with pytest.raises(UnsupportedFormatError):
        store.topic("large").group("g").commit({0: 1})
    assert store.topics() == ["large", "small"]
    assert all_files(volume) == before


def test_objects_are_not_replaced_by_other_means(volume: Path) -> None:
    """Neither by a rename nor by a write in place, also not for objects that need no condition."""
    store = LocalStore(volume)
    with pytest.raises(UnsupportedFormatError, match="does not implement"):
        store.write("hint", b"x")
    with pytest.raises(UnsupportedFormatError), store.open_output("data") as sink:
        sink.write(b"x")
    assert store.read("hint") is None
    assert store.read("data") is None


def test_doctor_says_why_and_gives_no_other_advice(volume: Path) -> None:
    before = all_files(volume)
    report = pylogtable.diagnose(volume)
    *passed, create = report.checks
    assert [check.status for check in passed] == ["ok", "ok"]
    assert (create.name, create.status, create.advice) == ("create", "failed", "")
    assert "no hard links" in create.detail
    assert "the object store itself" in create.detail
    assert all_files(volume) == before


def test_mount_is_as_restricted_as_a_volume(volume: Path, tmp_path: Path) -> None:
    """What these tests rely on."""
    file = volume / "plain"
    file.write_bytes(b"abc")
    try:
        with pytest.raises(OSError, match=r"not permitted|not implemented"):
            os.link(file, volume / "linked")
        with pytest.raises(OSError, match="not implemented"):
            os.rename(file, volume / "renamed")
        with pytest.raises(OSError, match="Illegal seek"):
            file.open("ab")
        with pytest.raises(OSError, match="not supported"):
            file.open("rb+")
    finally:
        file.unlink()


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EOPNOTSUPP])
def test_error_of_a_volume_names_its_cloud_path(code: int) -> None:
    error = failure_of("create", "/Volumes/main/default/logs/t/x", OSError(code, os.strerror(code)))
    assert isinstance(error, UnsupportedFormatError)
    for words in ("/Volumes/main/default/logs/t/x", os.strerror(code), "storageLocation", "s3://"):
        assert words in str(error)
    assert "unity-catalog" in str(error)
