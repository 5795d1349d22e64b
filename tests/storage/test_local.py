from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import shutil
import stat
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from pylogtable.errors import (
    InvalidRequestError,
    StorageError,
    TopicNotFoundError,
    UnsupportedFormatError,
)
from pylogtable.storage import local_files
from pylogtable.storage.base import Created, ObjectMissingError, ObjectStore
from pylogtable.storage.local import LocalStore
from tests.storage.contract import COMMIT, SEGMENT, StoreContract
from tests.storage.races import check_one_winner_each, race_in_process, race_in_threads


class TestLocalStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return LocalStore(tmp_path / "not" / "yet")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def test_who_waits_may_look_often(store: LocalStore) -> None:
    assert store.peek(COMMIT) is False
    store.create(COMMIT, b"x")
    assert store.peek(COMMIT) is True
    assert store.below("_manifest").peek(COMMIT.removeprefix("_manifest/")) is True


@pytest.mark.parametrize(
    ("device", "kind"),
    [("254:0", "ext4"), ("0:51", "nfs4"), ("0:52", "fuse.gcsfuse"), ("9:9", None)],
)
def test_kind_of_a_mount(device: str, kind: str | None) -> None:
    mounts = r"""
21 26 0:19 / /sys rw,nosuid shared:7 - sysfs sysfs rw
26 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
60 26 0:51 / /mnt/a\040-\040b rw shared:4 master:2 - nfs4 server:/x rw,vers=4.2
61 26 0:52 / /mnt/bucket rw - fuse.gcsfuse bucket rw
"""
    assert local_files.kind_of_mount(mounts.strip().splitlines(), device) == kind


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_opening_a_store_creates_no_files(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    assert store.read(COMMIT) is None
    assert list(store.list()) == []
    assert not (tmp_path / "t").exists()


def test_one_winner_among_threads(store: LocalStore, tmp_path: Path) -> None:
    check_one_winner_each(store, race_in_threads(store, writers=8))
    assert not [name for name in files(tmp_path) if ".tmp-" in name]


def test_one_winner_among_processes(store: LocalStore, tmp_path: Path) -> None:
    writers = 6
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as manager, ProcessPoolExecutor(writers, mp_context=spawn) as pool:
        barrier = manager.Barrier(writers)
        runs = [pool.submit(race_in_process, store, n, barrier) for n in range(writers)]
        won = dict(run.result() for run in runs)
    check_one_winner_each(store, won)
    assert not [name for name in files(tmp_path) if ".tmp-" in name]


def test_the_link_decides_a_race_and_not_the_check_before_it(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The other's object comes when the name was looked at and found free."""
    real = os.fsync

    def sync_late(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", real)
        store.write(COMMIT, b"theirs")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync_late)
    assert store.create(COMMIT, b"mine") is Created.EXISTS
    assert store.read(COMMIT) == b"theirs"
    assert files(tmp_path) == [COMMIT]


def test_data_is_durable_before_it_has_a_name(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After every fsync readers see nothing or everything; the last fsync is the directory's."""
    store.write("_manifest/warm-up", b"x")
    (tmp_path / "_manifest/warm-up").unlink()
    seen: list[tuple[bool, bytes | None]] = []
    fsync = os.fsync

    def watch(descriptor: int) -> None:
        fsync(descriptor)
        is_directory = os.path.isdir(f"/proc/self/fd/{descriptor}")
        seen.append((is_directory, store.read(COMMIT)))

    monkeypatch.setattr(os, "fsync", watch)
    store.create(COMMIT, b"created")
    assert seen == [(False, None), (True, b"created")]
    seen.clear()
    assert store.create(COMMIT, b"again") is Created.EXISTS
    assert seen == []
    store.write(COMMIT, b"written")
    assert seen == [(False, b"created"), (True, b"written")]
    seen.clear()
    with store.open_output(COMMIT) as sink:
        sink.write(b"streamed")
    assert seen == [(False, b"written"), (True, b"streamed")]


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_without_hard_links_create_refuses(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    def no_link(source: str, target: str) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", no_link)
    with pytest.raises(UnsupportedFormatError, match="no hard links") as caught:
        store.create(COMMIT, b"x")
    assert isinstance(caught.value.__cause__, OSError)
    assert files(tmp_path) == []


def test_a_link_that_may_have_landed_is_unknown(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def lands_and_fails(source: str, target: str) -> None:
        link(source, target)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "link", lands_and_fails)
    assert store.create(COMMIT, b"x") is Created.UNKNOWN
    assert store.read(COMMIT) == b"x"


def test_temporary_files_are_not_listed_and_cannot_be_keys(
    store: LocalStore, tmp_path: Path
) -> None:
    store.write("a/b", b"x")
    (tmp_path / "a" / ".tmp-1-2-3").write_bytes(b"left over")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / ".tmp-1-2-3").write_bytes(b"left over")
    assert [info.key for info in store.list()] == ["a/b"]
    assert store.list_folders() == ["a"]
    with pytest.raises(InvalidRequestError):
        store.read("a/.tmp-1-2-3")


def test_leftover_temporary_files_can_be_found_and_removed(
    store: LocalStore, tmp_path: Path
) -> None:
    store.write("a/b", b"x")
    (tmp_path / "a" / ".tmp-1-2-3").write_bytes(b"left over")
    assert [(info.key, info.size_bytes) for info in store.leftovers()] == [("a/.tmp-1-2-3", 9)]
    assert [info.key for info in store.below("a").leftovers()] == [".tmp-1-2-3"]
    for wrong in ("a/b", "a", "../.tmp-1", ".tmp-1/b"):
        with pytest.raises(InvalidRequestError):
            store.remove_leftover(wrong)
    store.below("a").remove_leftover(".tmp-1-2-3")
    store.remove_leftover("a/.tmp-1-2-3")
    assert [info.key for info in store.leftovers()] == []
    assert store.read("a/b") == b"x"


def test_a_temporary_name_left_by_another_process_is_skipped(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(local_files, "_serial", iter([7, 8]))
    monkeypatch.setattr(local_files.threading, "get_ident", lambda: 1)
    left_over = tmp_path / f".tmp-{os.getpid()}-1-7"
    left_over.write_bytes(b"left over")
    store.write("a", b"x")
    assert left_over.read_bytes() == b"left over"
    assert store.read("a") == b"x"


def test_files_get_the_usual_permissions(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"x")
    store.create("created", b"x")
    assert (tmp_path / "created").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_directory_that_was_removed_is_made_again(store: LocalStore, tmp_path: Path) -> None:
    store.write(SEGMENT, b"x")
    shutil.rmtree(tmp_path)
    assert store.create(SEGMENT, b"y") is Created.YES
    assert store.read(SEGMENT) == b"y"


def test_a_directory_is_not_an_object(store: LocalStore) -> None:
    store.write("a/b", b"x")
    with pytest.raises(StorageError):
        store.create("a", b"x")
    with pytest.raises(StorageError):
        store.write("a", b"x")
    with pytest.raises(StorageError):
        store.write("a/b/c", b"x")
    with pytest.raises(StorageError):
        store.open_input("a", 1).read()
    assert store.read("a/b") == b"x"


def test_no_space_is_a_storage_error(
    store: LocalStore, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    full = LocalStore(tmp_path_factory.mktemp("full"))
    full.write(SEGMENT, b"x" * 100_000)

    def stream() -> None:
        with store.open_output(SEGMENT) as sink:
            sink.write(b"x" * 100_000)

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        for call in (
            lambda: store.create(COMMIT, b"x" * 100_000),
            lambda: store.write(COMMIT, b"x" * 100_000),
            stream,
            lambda: store.copy_from(full, SEGMENT, 100_000),
        ):
            with pytest.raises(StorageError) as caught:
                call()
            assert isinstance(caught.value.__cause__, OSError)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_missing_permissions_are_a_storage_error(store: LocalStore, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StorageError) as caught:
            store.create("a", b"x")
        assert isinstance(caught.value.__cause__, PermissionError)
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("error", [FileNotFoundError("mine"), TopicNotFoundError("mine")])
def test_errors_raised_in_the_block_are_not_changed(store: LocalStore, error: Exception) -> None:
    def fail() -> None:
        with store.open_output(SEGMENT):
            raise error

    with pytest.raises(type(error)) as caught:
        fail()
    assert caught.value is error


def test_link_that_leads_nowhere_is_an_error_and_not_a_lost_race(store: LocalStore) -> None:
    """It takes the name of the next commit, and reads as absent."""
    Path(store.url.removeprefix("file://"), COMMIT).parent.mkdir(parents=True)
    Path(store.url.removeprefix("file://"), COMMIT).symlink_to("nowhere")
    with pytest.raises(StorageError, match="symbolic link that leads nowhere; remove it"):
        store.create(COMMIT, b"{}")


def test_folders_that_hold_nothing_are_removed_and_made_again(
    store: LocalStore, tmp_path: Path
) -> None:
    for key in ("log/a", "log/deep/b", "kept/deep/c"):
        store.write(key, b"x")
    store.delete("log/a")
    store.delete("log/deep/b")
    (tmp_path / "kept" / "empty").mkdir()
    store.remove_empty_folders("log/")
    store.remove_empty_folders("kept/")
    store.remove_empty_folders("absent/")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept"]
    assert files(tmp_path) == ["kept/deep/c"]
    assert store.create("log/deep/b", b"y") is Created.YES
    assert store.read("log/deep/b") == b"y"


def test_a_copy_is_a_file_of_its_own(store: LocalStore, tmp_path: Path) -> None:
    here, there = store.below("here"), store.below("there")
    here.write(SEGMENT, b"x")
    os.utime(tmp_path / "here" / SEGMENT, (5, 5))
    there.copy_from(here, SEGMENT, 1)
    first, second = ((tmp_path / name / SEGMENT).stat() for name in ("here", "there"))
    assert (first.st_nlink, second.st_nlink) == (1, 1)
    assert first.st_ino != second.st_ino
    assert second.st_mtime > 5
    assert there.last_reply_ms == second.st_mtime_ns // 1_000_000


def test_a_copy_is_on_the_disk_before_it_appears(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here, there = store.below("here"), store.below("there")
    here.write(SEGMENT, b"xyz")
    there.write(SEGMENT, b"old")
    synced = []

    def sync(descriptor: int) -> None:
        synced.append((stat.S_ISREG(os.fstat(descriptor).st_mode), there.read(SEGMENT)))

    monkeypatch.setattr(local_files.os, "fsync", sync)
    there.copy_from(here, SEGMENT, 3)
    assert synced[0] == (True, b"old")
    assert synced[-1] == (False, b"xyz")


def test_a_source_that_vanishes_during_a_copy_is_missing(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here, there = store.below("here"), store.below("there")
    monkeypatch.setattr(LocalStore, "size_of", lambda self, key: 3)
    with pytest.raises(ObjectMissingError, match="here"):
        there.copy_from(here, SEGMENT, 3)
    assert files(tmp_path) == []
