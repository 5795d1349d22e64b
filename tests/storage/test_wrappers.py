"""Tests of the wrappers in `tests/stores.py`, on which other tests rely."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pylogtable.errors import StorageError
from pylogtable.storage.base import Created, ObjectStore
from pylogtable.storage.memory import MemoryStore
from tests.storage.contract import COMMIT, SEGMENT, StoreContract
from tests.stores import CountingStore, Fault, FaultyStore, SimulatedCrash


class TestCountingStore(StoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return CountingStore(MemoryStore())

    test_survives_pickling = None


class TestFaultyStore(StoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return FaultyStore(MemoryStore(), lambda verb, key: None)

    test_survives_pickling = None


def test_requests_are_counted_by_verb() -> None:
    store = CountingStore(MemoryStore())
    topic = store.below("topic")
    topic.read("a")
    topic.create("a", b"x")
    store.read("topic/a")
    assert store.counts == {"read": 2, "create": 1}
    assert store.by_key == {("read", "topic/a"): 2, ("create", "topic/a"): 1}
    topic.reset()
    assert store.counts == {}


def test_reads_of_parquet_files_count_as_gets() -> None:
    store = CountingStore(MemoryStore())
    table = pa.table({"a": range(100_000), "b": range(100_000)})
    with store.open_output(SEGMENT) as sink:
        pq.write_table(table, sink, row_group_size=50_000, compression="none")
    (info,) = store.list()
    store.reset()
    file = pq.ParquetFile(store.open_input(SEGMENT, info.size_bytes), pre_buffer=True)
    assert store.counts == {"open_input": 1, "get": 1}
    file.read_row_group(0)
    assert store.by_key["get", SEGMENT] == 2


def faulty(*faults: Fault | None, late_after: int | None = None) -> tuple[FaultyStore, MemoryStore]:
    script = iter(faults)
    inner = MemoryStore()
    return FaultyStore(inner, lambda verb, key: next(script, None), late_after=late_after), inner


def test_create_with_a_lost_reply_lands() -> None:
    store, inner = faulty(Fault.LOSE_REPLY)
    assert store.create(COMMIT, b"x") is Created.UNKNOWN
    assert inner.read(COMMIT) == b"x"


def test_a_refused_create_does_not_land() -> None:
    store, inner = faulty(Fault.REFUSE)
    assert store.create(COMMIT, b"x") is Created.UNKNOWN
    assert inner.read(COMMIT) is None


def test_a_self_retried_create_exists() -> None:
    store, inner = faulty(Fault.SELF_RETRY)
    assert store.create(COMMIT, b"x") is Created.EXISTS
    assert inner.read(COMMIT) == b"x"


def test_a_late_create_lands_on_command_and_only_if_absent() -> None:
    store, inner = faulty(Fault.LATE, Fault.LATE)
    assert store.below("t").create("a", b"late") is Created.UNKNOWN
    assert store.create("b", b"late") is Created.UNKNOWN
    assert store.late == 2
    assert store.create("b", b"early") is Created.YES
    assert inner.read("t/a") is None
    assert store.land() == [Created.YES, Created.EXISTS]
    assert (inner.read("t/a"), inner.read("b")) == (b"late", b"early")
    assert store.land() == []


def test_a_late_create_lands_at_the_nth_operation() -> None:
    store, _ = faulty(Fault.LATE, late_after=2)
    store.create("a", b"late")
    assert store.read("a") is None
    assert store.below("t").read("x") is None
    assert store.read("a") == b"late"


@pytest.mark.parametrize(
    ("fault", "landed"), [(Fault.CRASH_BEFORE, False), (Fault.CRASH_AFTER, True)]
)
@pytest.mark.parametrize("verb", ["create", "write", "open_output"])
def test_crash_before_or_after_an_operation(fault: Fault, landed: bool, verb: str) -> None:
    store, inner = faulty(fault)

    def run() -> None:
        if verb == "open_output":
            with store.open_output("a") as sink:
                sink.write(b"x")
        else:
            getattr(store, verb)("a", b"x")

    with pytest.raises(SimulatedCrash):
        run()
    assert inner.read("a") == (b"x" if landed else None)


@pytest.mark.parametrize(("fault", "landed"), [(Fault.REFUSE, False), (Fault.LOSE_REPLY, True)])
def test_faults_of_other_verbs_raise(fault: Fault, landed: bool) -> None:
    store, inner = faulty(*[fault] * 3)
    inner.write("d", b"x")

    def stream() -> None:
        with store.open_output("b") as sink:
            sink.write(b"x")

    for call in (lambda: store.write("a", b"x"), stream, lambda: store.delete("d")):
        with pytest.raises(StorageError):
            call()
    assert (inner.read("a") == b"x") is landed
    assert (inner.read("b") == b"x") is landed
    assert (inner.read("d") is None) is landed


def test_a_truncated_write() -> None:
    store, inner = faulty(Fault.TRUNCATE)
    store.write("a", b"123456")
    assert inner.read("a") == b"123"


def test_a_copy_is_one_operation_of_the_target_and_reads_the_source() -> None:
    source, target = CountingStore(MemoryStore()), CountingStore(MemoryStore())
    source.below("t").write("a", b"12345")
    source.reset()
    target.below("t").copy_from(source.below("t"), "a", 5)
    assert target.by_key == {("copy_from", "t/a"): 1}
    assert source.by_key == {
        ("size_of", "t/a"): 1,
        ("open_input", "t/a"): 1,
        ("get", "t/a"): 1,
    }
    assert target.read("t/a") == b"12345"


@pytest.mark.parametrize(
    ("fault", "error", "landed"),
    [
        (Fault.CRASH_BEFORE, SimulatedCrash, False),
        (Fault.CRASH_AFTER, SimulatedCrash, True),
        (Fault.REFUSE, StorageError, False),
        (Fault.LOSE_REPLY, StorageError, True),
    ],
)
def test_faults_of_a_copy(fault: Fault, error: type[BaseException], landed: bool) -> None:
    store, inner = faulty(fault)
    source = MemoryStore()
    source.write("a", b"x")
    with pytest.raises(error):
        store.copy_from(source, "a", 1)
    assert (inner.read("a") == b"x") is landed


def test_a_fault_of_the_source_ends_a_copy() -> None:
    source, inner = faulty(None, Fault.CRASH_BEFORE)
    inner.write("a", b"x")
    target = MemoryStore()
    with pytest.raises(SimulatedCrash):
        target.copy_from(source, "a", 1)
    assert list(target.list()) == []
