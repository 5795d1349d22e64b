"""Tests that every store must pass. The test module of a store inherits them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pylogtable.errors import InvalidRequestError, StorageError
from pylogtable.limits import Limits
from pylogtable.storage.base import Created, ObjectMissingError, ObjectStore
from pylogtable.storage.local import LocalStore
from pylogtable.storage.memory import MemoryStore

COMMIT = "_manifest/00000000000000000007.json"
SEGMENT = "partition=3/00000000000000000042-abc.parquet"


class StoreContract:
    @pytest.fixture
    def store(self) -> ObjectStore:
        raise NotImplementedError

    def test_an_absent_object_reads_as_none(self, store: ObjectStore) -> None:
        assert store.read(COMMIT) is None
        store.write(SEGMENT, b"x")
        assert store.read(COMMIT) is None
        assert store.read("partition=3") is None
        assert store.read(SEGMENT + "/deeper") is None

    def test_many_objects_are_read_in_the_order_asked_for(self, store: ObjectStore) -> None:
        for n in range(40):
            store.write(f"many/{n}", b"%d" % n)
        store.write("many/empty", b"")
        keys = [f"many/{n}" for n in reversed(range(41))]
        expected = [None, *(b"%d" % n for n in reversed(range(40)))]
        assert store.read_many(keys) == expected
        assert store.read_many(["many/empty", "many/7", "many/none"]) == [b"", b"7", None]
        assert store.read_many(["many/7"]) == [b"7"]
        assert store.read_many([]) == []
        with pytest.raises(InvalidRequestError):
            store.read_many(["many/7", "../many/7"])

    def test_create_succeeds_only_once(self, store: ObjectStore) -> None:
        assert store.create(COMMIT, b"first") is Created.YES
        assert store.create(COMMIT, b"second") is Created.EXISTS
        assert store.read(COMMIT) == b"first"

    def test_peek_tells_at_once_or_nothing(self, store: ObjectStore) -> None:
        """It is asked many times a second, so where it takes a request it is not sent."""
        before = store.peek(COMMIT)
        store.create(COMMIT, b"x")
        assert (before, store.peek(COMMIT)) in {(False, True), (None, None)}
        assert before is None or not store.is_remote

    def test_create_after_delete_puts_again(self, store: ObjectStore) -> None:
        store.create(COMMIT, b"first")
        store.delete(COMMIT)
        assert store.create(COMMIT, b"second") is Created.YES
        assert store.read(COMMIT) == b"second"

    def test_create_does_not_replace_an_object_put_by_write(self, store: ObjectStore) -> None:
        store.write(COMMIT, b"written")
        assert store.create(COMMIT, b"created") is Created.EXISTS
        assert store.read(COMMIT) == b"written"

    def test_write_replaces(self, store: ObjectStore) -> None:
        store.write(COMMIT, b"a longer first text")
        store.write(COMMIT, b"second")
        assert store.read(COMMIT) == b"second"
        store.write(COMMIT, b"")
        assert store.read(COMMIT) == b""

    def test_list_gives_keys_in_order_with_sizes(self, store: ObjectStore) -> None:
        keys = ["a/x", "a-b/x", "a", "b/2", "b/10", "b/1/deep", "partition=0/f", "ä/x", "A"]
        keys.remove("a")  # beside "a/x" no file system can hold it
        for n, key in enumerate(keys, start=1):
            store.write(key, b"." * n)
        found = list(store.list())
        assert [info.key for info in found] == sorted(keys)
        assert {info.key: info.size_bytes for info in found} == {
            key: n for n, key in enumerate(keys, start=1)
        }
        assert all(isinstance(info.modified_ms, int) for info in found)

    def test_list_below_a_prefix(self, store: ObjectStore) -> None:
        for key in ("a/1", "a/b/2", "ab/3", "c"):
            store.write(key, b".")
        assert [info.key for info in store.list("a/")] == ["a/1", "a/b/2"]
        assert [info.key for info in store.list("a/b/")] == ["a/b/2"]
        assert list(store.list("nothing/")) == []
        with pytest.raises(InvalidRequestError):
            list(store.list("a"))

    def test_list_after_a_key(self, store: ObjectStore) -> None:
        for key in ("a/1", "a/2", "a/2x/3", "a/b/4", "ab/5"):
            store.write(key, b"..")
        assert [info.key for info in store.list_after("a/", "a/1")] == ["a/2", "a/2x/3", "a/b/4"]
        assert [info.key for info in store.list_after("a/", "a/2y")] == ["a/b/4"]
        assert [info.size_bytes for info in store.list_after("a/", "a/2y")] == [2]
        assert list(store.list_after("a/", "a/c")) == []
        assert list(store.list_after("nothing/", "nothing/1")) == []

    def test_list_folders(self, store: ObjectStore) -> None:
        assert store.list_folders() == []
        for key in ("b/1", "a/deep/er/2", "=x/3", "file"):
            store.write(key, b".")
        assert store.list_folders() == ["=x", "a", "b"]
        store.delete("b/1")
        assert store.list_folders() == ["=x", "a"]

    def test_delete_is_idempotent(self, store: ObjectStore) -> None:
        store.write(COMMIT, b"x")
        store.delete(COMMIT)
        store.delete(COMMIT)
        store.delete("_manifest")
        store.delete("never/there")
        assert store.read(COMMIT) is None
        assert list(store.list()) == []

    def test_output_appears_when_the_block_ends(self, store: ObjectStore) -> None:
        with store.open_output(SEGMENT) as sink:
            sink.write(b"one ")
            sink.write(b"two")
            assert sink.tell() == 7
            assert store.read(SEGMENT) is None
            assert list(store.list()) == []
        assert store.read(SEGMENT) == b"one two"
        assert [info.key for info in store.list()] == [SEGMENT]

    def test_output_may_be_closed_inside_the_block(self, store: ObjectStore) -> None:
        with store.open_output(SEGMENT) as sink:
            sink.write(b"whole")
            sink.close()
        assert store.read(SEGMENT) == b"whole"

    @pytest.mark.parametrize("size", [3, 10 * 2**20])
    def test_output_of_a_failed_block_never_appears(self, store: ObjectStore, size: int) -> None:
        def fail() -> None:
            with store.open_output(SEGMENT) as sink:
                sink.write(b"." * size)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fail()
        assert store.read(SEGMENT) is None
        assert list(store.list()) == []
        assert store.list_folders() == []

    def test_large_output(self, store: ObjectStore) -> None:
        block = bytes(range(256)) * 4096
        with store.open_output(SEGMENT) as sink:
            for n in range(18):
                sink.write(block[n:])
        size = sum(len(block) - n for n in range(18))
        assert [info.size_bytes for info in store.list()] == [size]
        with store.open_input(SEGMENT, size) as file:
            assert file.read() == b"".join(block[n:] for n in range(18))

    def test_input_is_random_access(self, store: ObjectStore) -> None:
        data = bytes(range(256)) * 8192
        store.write(SEGMENT, data)
        with store.open_input(SEGMENT, len(data)) as file:
            assert file.size() == len(data)
            assert file.read_at(300, 1_000_000) == data[1_000_000:1_000_300]
            file.seek(5)
            assert file.read(3) == data[5:8]
            assert file.read(3) == data[8:11]
            file.seek(-4, 2)
            assert file.read() == data[-4:]
            assert file.read() == b""

    def test_input_of_a_missing_object_raises(self, store: ObjectStore) -> None:
        with pytest.raises(ObjectMissingError):
            store.open_input(SEGMENT, 5).read()
        with pytest.raises(ObjectMissingError):
            pq.ParquetFile(store.open_input(SEGMENT, 10_000_000), pre_buffer=True)

    def test_parquet_round_trip(self, store: ObjectStore) -> None:
        table = pa.table({"offset": range(30_000), "value": [f"v{n}" * 9 for n in range(30_000)]})
        with store.open_output(SEGMENT) as sink:
            pq.write_table(table, sink, row_group_size=10_000)
        (info,) = store.list()
        with store.open_input(info.key, info.size_bytes) as source:
            file = pq.ParquetFile(source, pre_buffer=True)
            assert (
                file.read_row_group(1, columns=["value"])
                == table.select(["value"])[10_000:20_000].combine_chunks()
            )
            assert file.read() == table

    def test_size_of_an_object(self, store: ObjectStore) -> None:
        store.write(SEGMENT, b"12345")
        store.write(COMMIT, b"")
        assert (store.size_of(SEGMENT), store.size_of(COMMIT)) == (5, 0)
        assert [store.size_of(key) for key in ("none", "partition=3", SEGMENT + "/x")] == [None] * 3

    @pytest.fixture(params=["same kind", "from memory", "to memory", "from disk", "to disk"])
    def places(
        self, request: pytest.FixtureRequest, store: ObjectStore, tmp_path: Path
    ) -> tuple[ObjectStore, ObjectStore]:
        """The store to copy from, and the one to copy to."""
        here, there = store.below("here"), store.below("there")
        disk = LocalStore(tmp_path / "disk")
        ways: dict[str, tuple[ObjectStore, ObjectStore]] = {
            "same kind": (here, there),
            "from memory": (MemoryStore(), there),
            "to memory": (here, MemoryStore()),
            "from disk": (disk, there),
            "to disk": (here, disk),
        }
        return ways[request.param]

    @pytest.mark.parametrize("data", [b"", b"some bytes"])
    def test_copy_replaces(self, places: tuple[ObjectStore, ObjectStore], data: bytes) -> None:
        source, target = places
        source.write(SEGMENT, data)
        target.write(COMMIT, b"untouched")
        for _ in range(2):
            target.copy_from(source, SEGMENT, len(data))
            assert target.read(SEGMENT) == source.read(SEGMENT) == data
            target.write(SEGMENT, b"something else, and longer")
        assert target.read(COMMIT) == b"untouched"

    def test_copy_in_several_chunks(self, places: tuple[ObjectStore, ObjectStore]) -> None:
        source, target = (place.with_limits(Limits(copy_bytes=2**20)) for place in places)
        data = b"".join(n.to_bytes(4, "big") for n in range(900_000))
        source.write(SEGMENT, data)
        target.copy_from(source, SEGMENT, len(data))
        assert target.read(SEGMENT) == data

    def test_copy_of_a_missing_object_raises(self, places: tuple[ObjectStore, ObjectStore]) -> None:
        source, target = places
        target.write(SEGMENT, b"kept")
        with pytest.raises(ObjectMissingError) as caught:
            target.copy_from(source, SEGMENT, 7)
        assert f"{source.url}/{SEGMENT}" in str(caught.value)
        assert target.url in str(caught.value)
        assert target.read(SEGMENT) == b"kept"

    @pytest.mark.parametrize("size", [9, 11])
    def test_copy_of_another_size_than_expected_never_appears(
        self, places: tuple[ObjectStore, ObjectStore], size: int
    ) -> None:
        source, target = places
        source.write(SEGMENT, b"ten bytes!")
        with pytest.raises(StorageError) as caught:
            target.copy_from(source, SEGMENT, size)
        for part in (f"{source.url}/{SEGMENT}", target.url, "10 bytes", str(size)):
            assert part in str(caught.value)
        assert list(target.list()) == list(target.leftovers()) == []

    def test_copy_onto_itself_changes_nothing(self, store: ObjectStore) -> None:
        store.write(SEGMENT, b"x")
        store.copy_from(store, SEGMENT, 1)
        assert store.read(SEGMENT) == b"x"

    def test_below_is_the_same_store_with_a_deeper_root(self, store: ObjectStore) -> None:
        deeper = store.below("topics").below("orders/")
        assert deeper.url == store.url.rstrip("/") + "/topics/orders"
        assert (deeper.is_remote, deeper.concurrency) == (store.is_remote, store.concurrency)
        assert deeper.create(COMMIT, b"x") is Created.YES
        assert store.create(f"topics/orders/{COMMIT}", b"y") is Created.EXISTS
        assert [info.key for info in deeper.list()] == [COMMIT]
        assert [info.key for info in deeper.list("_manifest/")] == [COMMIT]
        assert deeper.list_folders() == ["_manifest"]
        assert store.list_folders() == ["topics"]

    def test_time_is_that_of_an_object_just_written(self, store: ObjectStore) -> None:
        before = store.now_ms()
        store.write(COMMIT, b"x")
        (info,) = store.list()
        after = store.below("topic").now_ms()
        # A listing may be more exact than a header, which tells seconds.
        assert before <= info.modified_ms < after + 1000
        assert after - before < 60_000
        assert [info.key for info in store.list()] == [COMMIT]
        assert list(store.leftovers()) == []

    def test_last_reply_is_free_and_not_later_than_now(self, store: ObjectStore) -> None:
        store.write(COMMIT, b"x")
        deeper = store.below("topic")
        replied_ms = deeper.last_reply_ms
        assert replied_ms == store.last_reply_ms or replied_ms is not None
        assert replied_ms is not None
        assert abs(store.now_ms() - replied_ms) < 60_000

    def test_limits_hold_below(self, store: ObjectStore) -> None:
        limited = store.with_limits(Limits(batch_rows=7))
        assert limited.below("topic").limits == limited.limits == Limits(batch_rows=7)
        assert store.below("topic").limits == store.limits == Limits()

    def test_survives_pickling(self, store: ObjectStore) -> None:
        store.write("topic/" + COMMIT, b"x")
        limited = store.with_limits(Limits(batch_rows=7))
        again = pickle.loads(pickle.dumps(limited.below("topic")))
        assert (again.url, again.limits) == (store.below("topic").url, limited.limits)
        assert again.read(COMMIT) == b"x"
        assert again.create(COMMIT, b"y") is Created.EXISTS

    @pytest.mark.parametrize(
        "key", ["", "/", "/etc/passwd", "a//b", "a/", "./a", "..", "a/../../b", "a/..", "a\0b"]
    )
    def test_a_key_cannot_leave_the_root(self, store: ObjectStore, key: str) -> None:
        for call in (
            store.read,
            store.delete,
            lambda key: store.write(key, b"x"),
            lambda key: store.create(key, b"x"),
            lambda key: store.open_output(key).__enter__(),
            lambda key: store.open_input(key, 1),
            store.size_of,
            lambda key: store.copy_from(store, key, 1),
            lambda key: list(store.list(key + "/")),
        ):
            with pytest.raises(InvalidRequestError):
                call(key)
