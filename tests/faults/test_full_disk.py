"""A disk that fills, for real: a small tmpfs. Every failure is a `StorageError` that names a path,
no temporary file stays, and what was acknowledged is there."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import pylogtable
from pylogtable import StorageError, Store, Topic
from tests.depth import rounds

KIB = 1024


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """Not below `tmp_path`: other runs of pytest remove what they find there."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["-t", "tmpfs", "-o", f"size={512 * KIB}", "tmpfs", folder]
        try:
            subprocess.run(["mount", *options], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("cannot mount a tmpfs here")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


def _records(size: int) -> pa.Table:
    return pa.table({"key": [b"k"], "value": [random.Random(size).randbytes(size)]})


def _temporary_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob(".tmp-*") if path.is_file()]


def _open_files(folder: Path) -> list[str]:
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    found = [os.readlink(link) for link in links if os.path.islink(link)]
    return [path for path in found if path.startswith(str(folder))]


def _fill(folder: Path, left_bytes: int) -> Path:
    """Leave this many bytes free."""
    ballast = folder / "ballast"
    ballast.unlink(missing_ok=True)
    state = os.statvfs(folder)
    ballast.write_bytes(b"x" * max(0, state.f_bavail * state.f_frsize - left_bytes))
    return ballast


def test_appends_until_the_disk_is_full_and_after_it_has_room_again(small_disk: Path) -> None:
    store = pylogtable.open(small_disk / "logs")
    topic = store.create_topic("t", partitions=2)
    sizes = [1, 20 * KIB, 100 * KIB, 3000 * KIB]
    appended, refusals = 0, []
    for size in itertools.chain(sizes * 2, [5 * KIB] * rounds(120, deep=400)):
        try:
            topic.append(_records(size))
        except StorageError as error:
            refusals.append(str(error))
        else:
            appended += 1
        assert _temporary_files(small_disk) == []
    assert appended > 3
    assert len(refusals) > 3
    for refusal in refusals:
        assert str(small_disk / "logs" / "t") in refusal
        assert "No space left on device" in refusal
    assert topic.count() == pylogtable.open_topic(small_disk / "logs" / "t").count() == appended
    assert topic.verify(data=True)
    subprocess.run(
        ["mount", "-o", f"remount,size={2048 * KIB}", str(small_disk)],
        check=True,
    )
    topic.append(_records(100 * KIB))
    assert topic.count() == appended + 1
    assert topic.verify(data=True)


OPERATIONS: dict[str, Callable[[Store, Topic], object]] = {
    "append": lambda store, topic: topic.append(_records(KIB)),
    "append much": lambda store, topic: topic.append(_records(300 * KIB)),
    "produce": lambda store, topic: (
        topic.producer(linger_ms=0).send(key=b"k", value=b"x" * KIB).result()
    ),
    "merge": lambda store, topic: topic.merge(),
    "compact": lambda store, topic: topic.compact(force=True),
    "alter": lambda store, topic: topic.alter(partitions=3),
    "delete records": lambda store, topic: topic.delete_records({0: 1}),
    "group": lambda store, topic: topic.group("g").commit({0: 1}),
    "create": lambda store, topic: store.create_topic("u"),
    "vacuum": lambda store, topic: topic.vacuum(dry_run=False, retention_ms=0, force=True),
    "delete": lambda store, topic: store.delete_topic("t"),
}


@pytest.mark.parametrize("left_bytes", [0, 4 * KIB, 8 * KIB])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_on_a_full_disk_works_or_is_a_storage_error(
    small_disk: Path, operation: str, left_bytes: int
) -> None:
    store = pylogtable.open(small_disk / "logs")
    both = {"cleanup.policy": "compact,delete"}
    topic = store.create_topic("t", partitions=2, config=both)
    for _ in range(3):
        topic.append(pa.table({"key": [b"a"], "value": [b"b" * 100]}))
    ballast = _fill(small_disk, left_bytes)
    before, refusal = topic.count(), None
    try:
        OPERATIONS[operation](store, topic)
    except StorageError as error:
        refusal = str(error)
    assert _temporary_files(small_disk) == []
    assert _open_files(small_disk) == []
    if refusal is not None:
        assert "No space left on device" in refusal
        assert str(small_disk / "logs") in refusal
        assert topic.count() == before
        ballast.unlink()
        OPERATIONS[operation](store, topic)
    if operation != "delete":
        assert topic.verify(data=True)
