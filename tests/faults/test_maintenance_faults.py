"""Maintenance that crashes at any step, loses replies, or meets other jobs and writers at any step.

Readers see, in each partition, exactly the old or exactly the new records; another run gets there.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from pylogtable.engine import Compaction, Merge, Rewritten, RunUnits, Worker, plan_append, run_job
from pylogtable.errors import CommitUnknownError, LogTableError, TopicNotFoundError
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.builders import IN_FILES, SMALL, Clock, ints, kafka
from tests.depth import sample
from tests.faults import support
from tests.faults.support import NAME, FakeTime, Plan, commits_of, data_files
from tests.stores import Fault, FaultyStore, SimulatedCrash

DAY = 86_400.0
WEEKS = 30 * DAY
OLD_MS = 1_600_000_000_000
ERASED = [b"a", b"x"]

Job = Callable[[Topic], object]
Records = dict[int, list[tuple[int, bytes | None, bytes | None]]]


def copy_of(inner: ObjectStore) -> MemoryStore:
    """A store with the same objects, all of them old. What is written later is new."""
    clock = Clock(OLD_MS)
    copy = MemoryStore(clock=clock).with_limits(inner.limits)
    for entry in inner.list():
        data = inner.read(entry.key)
        assert data is not None
        copy.write(entry.key, data)
    clock.now_ms = FakeTime(WEEKS).clock()
    return copy


def open_at(inner: ObjectStore, seconds: float = 0.0, patience: float = 10.0) -> Topic:
    return Store(inner, FakeTime(seconds).runtime(patience)).topic(NAME)


def records(topic: Topic, version: int | None = None) -> Records:
    table = topic.read(columns=["partition", "offset", "key", "value"], version=version).read_all()
    found: Records = {number: [] for number in topic.end_offsets()}
    for partition, *rest in zip(*(column.to_pylist() for column in table.columns), strict=True):
        found[partition].append(tuple(rest))
    return found


def put(topic: Topic, keys: str, values: str, partition: int) -> None:
    """One letter a record; a blank value is a tombstone."""
    table = kafka(list(keys), [None if v == " " else v for v in values])
    topic.append(table.append_column("partition", ints(*[partition] * len(keys))))


@pytest.fixture(scope="module")
def _base() -> MemoryStore:
    """Two partitions of a changelog, compacted once, with tombstones whose time has come, shifted
    and empty segments, roots and leaves, and a log start inside a segment."""
    return _changelog()


@pytest.fixture(scope="module")
def _mixed() -> MemoryStore:
    """The same, and the newer half of it is in commits instead of files."""
    return _changelog(inline_bytes=4096)


def _changelog(inline_bytes: int = 0) -> MemoryStore:
    inner = MemoryStore().with_limits(SMALL)
    config = {
        "cleanup.policy": "compact,delete",
        "retention.ms": -1,
        "delete.retention.ms": 1000,
        **IN_FILES,
    }
    topic = Store(inner, FakeTime().runtime()).create_topic(NAME, 2, config=config)
    put(topic, "aab", "123", 0)
    put(topic, "bc", " 4", 0)
    put(topic, "xyx", "123", 1)
    topic.compact(force=True)
    if inline_bytes:
        topic.alter(config={"inline.max.bytes": inline_bytes})
    put(topic, "cd", "56", 0)
    put(topic, "yy", "4 ", 1)
    parts = [
        plan_append(topic).stage(kafka(list("ae"), list("78"), partition=ints(0, 0)))
        for _ in range(2)
    ]
    plan_append(topic, refresh=False).commit(parts, keep_files=True)
    put(topic, "x", " ", 1)
    topic.delete_records({1: 1})
    return inner


@pytest.fixture
def base(_base: MemoryStore) -> MemoryStore:
    return support.copy_of(_base)


@pytest.fixture
def mixed(_mixed: MemoryStore) -> MemoryStore:
    return support.copy_of(_mixed)


def compact(topic: Topic) -> object:
    return topic.compact(force=True, threads=1)


def merge(topic: Topic) -> object:
    return topic.merge(threads=1)


def retention(topic: Topic) -> object:
    """Removes about half of the records."""
    return topic.apply_retention()


def vacuum(topic: Topic) -> object:
    return topic.vacuum(dry_run=False)


def vacuum_at_once(topic: Topic) -> object:
    return topic.vacuum(dry_run=False, retention_ms=0, force=True)


def erase(topic: Topic) -> object:
    return topic.erase(keys=ERASED, threads=1)


JOBS = [compact, merge, retention, vacuum, vacuum_at_once, erase]
FAULTS = [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOSE_REPLY, Fault.REFUSE]


def prepared(base: MemoryStore, job: Job) -> MemoryStore:
    """A store in which the job has something to do."""
    topic = open_at(base)
    if job is retention:
        topic.alter(config={"retention.bytes": 2000})
    if job in (vacuum, vacuum_at_once):
        topic.compact(force=True)
        topic.merge()
        if topic.at().snapshot.config.inline_max_bytes:
            # Two commits that stay, below a root and among commits that go [INL-6].
            put(topic, "f", "1", 0)
            put(topic, "g", "2", 1)
            for number in range(5):
                topic.alter(config={"delete.retention.ms": 1001 + number})
    return base


def crash_points(base: MemoryStore, job: Job) -> int:
    plan = Plan(None, None)
    plan.armed = False
    topic = open_at(FaultyStore(copy_of(base), plan), WEEKS)
    plan.armed = True
    job(topic)
    assert len(plan.seen) > 2
    return len(plan.seen)


def check(inner: ObjectStore, old: Records, new: Records) -> None:
    topic = open_at(inner, WEEKS)
    found = records(topic)
    for number, mine in found.items():
        assert mine in (old[number], new[number])
        offsets = [offset for offset, _, _ in mine]
        assert offsets == sorted(set(offsets))
    report = topic.verify(data=True)
    assert report, str(report)


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("fault", FAULTS)
def test_job_that_fails_at_any_step_leaves_old_or_new_records(
    base: MemoryStore, job: Job, fault: Fault
) -> None:
    fail_at_any_step(prepared(base, job), job, fault, every=9)


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("fault", FAULTS)
def test_job_that_fails_at_any_step_where_records_are_in_commits(
    mixed: MemoryStore, job: Job, fault: Fault
) -> None:
    fail_at_any_step(prepared(mixed, job), job, fault, every=11)


def fail_at_any_step(base: MemoryStore, job: Job, fault: Fault, every: int) -> None:
    old = records(open_at(base))
    ideal = copy_of(base)
    job(open_at(ideal, WEEKS))
    new = records(open_at(ideal, WEEKS))
    check(ideal, new, new)
    for at in sample(range(crash_points(base, job)), every, first=FAULTS.index(fault)):
        inner = copy_of(base)
        plan = Plan(at, fault)
        plan.armed = False
        topic = open_at(FaultyStore(inner, plan), WEEKS)
        plan.armed = True
        with suppress(SimulatedCrash, LogTableError):
            job(topic)
        assert plan.hit, at
        check(inner, old, new)
        job(open_at(inner, WEEKS))
        check(inner, new, new)


@pytest.mark.parametrize("job", [compact, merge, erase])
@pytest.mark.parametrize("lands", [True, False])
def test_files_of_a_commit_with_an_unknown_outcome_are_kept(
    base: MemoryStore, job: Job, lands: bool
) -> None:
    ideal = copy_of(base)
    old = records(open_at(ideal))
    job(open_at(ideal, WEEKS))
    new = records(open_at(ideal, WEEKS))
    inner = copy_of(base)
    next_version = open_at(inner).version + 1
    name = f"{NAME}/_manifest/{next_version:020d}.json"
    state = {"tried": False}
    deleted: list[str] = []

    def decide(verb: str, key: str) -> Fault | None:
        if verb == "delete":
            deleted.append(key)
        if key != name:
            return None
        if verb == "create":
            state["tried"] = True
            return Fault.LOSE_REPLY if lands else Fault.REFUSE
        return Fault.REFUSE if state["tried"] else None

    topic = open_at(FaultyStore(inner, decide), WEEKS)
    with pytest.raises(CommitUnknownError):
        job(topic)
    newest = commits_of(inner)[-1]
    if lands:
        assert newest.version == next_version
        assert {segment.path for segment in newest.add} <= data_files(inner)
    # Only what was never tried may have been removed: files of the other partition.
    assert not [key for key in deleted if "partition=0/" in key]
    check(inner, old, new)
    job(open_at(inner, WEEKS))
    check(inner, new, new)


def at_every_step(
    base: MemoryStore, job: Job, interloper: Callable[[ObjectStore], object]
) -> Iterator[tuple[MemoryStore, BaseException | None]]:
    """Run the job once for each of its operations (each fifth, unless the run is deep), and let
    the interloper do its work just before that operation."""
    for at in sample(range(crash_points(base, job)), 5, first=JOBS.index(job)):
        inner = copy_of(base)
        seen = 0
        armed = False

        def decide(verb: str, key: str, at: int = at, inner: MemoryStore = inner) -> Fault | None:
            nonlocal seen, armed
            if armed:
                seen += 1
                if seen == at + 1:
                    armed = False
                    interloper(inner)
            return None

        topic = open_at(FaultyStore(inner, decide), WEEKS)
        armed = True
        failed: BaseException | None = None
        try:
            job(topic)
        except LogTableError as error:
            failed = error
        yield inner, failed


def append_more(inner: ObjectStore) -> None:
    put(open_at(inner, WEEKS), "ad", "9 ", 0)
    put(open_at(inner, WEEKS), "y", "9", 1)


def others(job: Job) -> Callable[[ObjectStore], object]:
    return lambda inner: job(open_at(inner, WEEKS))


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("where", ["base", "mixed"])
def test_job_does_not_disturb_an_append_at_any_step(
    request: pytest.FixtureRequest, job: Job, where: str
) -> None:
    base = prepared(request.getfixturevalue(where), job)
    ideal = copy_of(base)
    job(open_at(ideal, WEEKS))
    append_more(ideal)
    job(open_at(ideal, WEEKS))
    compact(open_at(ideal, WEEKS))
    final = records(open_at(ideal, WEEKS))
    for inner, failed in at_every_step(base, job, append_more):
        assert failed is None
        topic = open_at(inner, WEEKS)
        assert topic.end_offsets() == open_at(ideal).end_offsets()
        assert topic.verify(data=True)
        job(topic)
        compact(topic)
        if job is not retention:
            assert records(topic) == final
        assert topic.verify(data=True)


@pytest.mark.parametrize(
    ("job", "other"),
    [
        (compact, compact),
        (compact, merge),
        (merge, compact),
        (merge, merge),
        (compact, retention),
        (merge, retention),
        (retention, compact),
        (vacuum_at_once, compact),
        (vacuum, merge),
        (vacuum, vacuum_at_once),
        (erase, compact),
        (erase, merge),
        (erase, retention),
        (erase, erase),
        (compact, erase),
        (merge, erase),
        (retention, erase),
        (vacuum_at_once, erase),
    ],
)
def test_two_jobs_that_meet_at_any_step_do_no_harm(base: MemoryStore, job: Job, other: Job) -> None:
    meet_at_any_step(base, job, other)


@pytest.mark.parametrize(
    ("job", "other"),
    [(merge, merge), (merge, erase), (compact, merge), (vacuum, merge), (vacuum_at_once, compact)],
)
def test_two_jobs_that_meet_where_records_are_in_commits(
    mixed: MemoryStore, job: Job, other: Job
) -> None:
    meet_at_any_step(mixed, job, other)


def meet_at_any_step(base: MemoryStore, job: Job, other: Job) -> None:
    base = prepared(base, retention if retention in (job, other) else job)
    ideal = copy_of(base)
    for step in (job, other, compact):
        step(open_at(ideal, WEEKS))
    final = records(open_at(ideal, WEEKS))
    for inner, failed in at_every_step(base, job, others(other)):
        assert failed is None
        topic = open_at(inner, WEEKS)
        report = topic.verify(data=True)
        assert report, str(report)
        commits = (*commits_of(base), *commits_of(inner))  # a vacuum may have removed some
        named = {segment.path for commit in commits for segment in commit.add}
        assert data_files(inner) <= named, "a lost job left files behind"
        if erase in (job, other):
            left = [key for mine in records(topic).values() for _, key, _ in mine]
            assert not {*ERASED}.intersection(left), "an erased record came back"
        compact(topic)
        if retention not in (job, other):
            assert records(topic) == final


@pytest.mark.parametrize("job", [compact, merge, vacuum_at_once, retention, erase])
def test_job_does_not_touch_a_topic_that_was_recreated(base: MemoryStore, job: Job) -> None:
    base = prepared(base, job)

    def anew(inner: ObjectStore) -> None:
        store = Store(inner, FakeTime(WEEKS).runtime())
        store.delete_topic(NAME)
        topic = store.create_topic(NAME, 2)
        put(topic, "aa", "12", 0)

    failures = 0
    for inner, failed in at_every_step(base, job, anew):
        if failed is not None:
            failures += 1
            # An input may be gone before the job can find out that the topic is.
            assert isinstance(failed, LogTableError)
        topic = open_at(inner, WEEKS)
        assert records(topic) == {0: [(0, b"a", b"1"), (1, b"a", b"2")], 1: []}
        assert topic.verify(data=True)
    assert failures


def after_the_work(meanwhile: Callable[[], object]) -> RunUnits:
    """Run all units, then let others do something before the results are committed."""

    def run_units(worker: Worker, units: Sequence[Any]) -> builtins.list[Rewritten]:
        rewritten = [worker(unit) for unit in units]
        meanwhile()
        return rewritten

    return run_units


def test_column_added_during_a_merge_is_kept(base: MemoryStore) -> None:
    """A worker made before the change uses the topic as it was when the unit was planned."""
    inner = copy_of(base)
    topic = open_at(inner, WEEKS)
    earlier = Worker(topic._store, topic._log.runtime.new_id, Merge().rewrite)
    topic.alter(add_columns={"n": pa.int32()})
    table = kafka(["z"], ["1"], partition=ints(0)).append_column("n", ints(7))
    topic.append(table)

    def run_newest(_: Worker, units: Sequence[Any]) -> builtins.list[Rewritten]:
        *_, newest = (unit for unit in units if unit.partition == 0)
        return [earlier(newest)]

    run_job(topic, Merge(), run_newest)
    assert topic.read(0, columns=["n"]).read_all()["n"].to_pylist()[-1] == 7


def test_compaction_stops_if_the_policy_changed(base: MemoryStore) -> None:
    inner = copy_of(base)
    topic = open_at(inner, WEEKS)
    before = records(topic)
    meanwhile = after_the_work(
        lambda: open_at(inner, WEEKS).alter(config={"cleanup.policy": "delete"})
    )
    report = run_job(topic, Compaction(force=True), meanwhile)
    assert report.units == 0
    assert report.skipped > 0
    assert records(topic) == before


def test_compaction_that_another_overtook_commits_nothing(base: MemoryStore) -> None:
    """It found nothing to remove, so it would only commit a clean end, and that is old by now."""
    inner = MemoryStore().with_limits(SMALL)
    store = Store(inner, FakeTime().runtime())
    topic = store.create_topic(NAME, 1, config={"cleanup.policy": "compact"})
    put(topic, "a", "1", 0)
    versions = []

    def overtake() -> None:
        put(topic, "b", "1", 0)
        compact(open_at(inner))
        versions.append(topic.version)

    assert run_job(topic, Compaction(force=True), after_the_work(overtake)).skipped == 1
    assert [topic.version] == versions
    assert topic.at().snapshot.partitions[0].clean_end == 2


def test_jobs_in_threads_beside_a_writer_lose_nothing(base: MemoryStore) -> None:
    """Two compactors, a merger and retention beside a writer, in real threads."""
    inner = copy_of(base)
    stop = threading.Event()
    failures: builtins.list[BaseException] = []

    def again(job: Job) -> None:
        topic = open_at(inner, WEEKS)
        try:
            while not stop.is_set():
                job(topic)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=again, args=(j,)) for j in (compact, compact, merge)]
    for thread in threads:
        thread.start()
    topic = open_at(inner, WEEKS)
    for number in range(25):
        put(topic, "pqp", f"{number % 10} {number % 10}", 0)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    compact(topic)
    newest = {key: value for _, key, value in records(topic)[0]}
    assert newest[b"p"] == b"4"
    assert newest.get(b"q") is None
    assert topic.verify(data=True)


def test_file_staged_before_a_vacuum_can_be_committed_after_it(base: MemoryStore) -> None:
    inner = copy_of(prepared(base, vacuum))
    topic = open_at(inner, WEEKS)
    staged = plan_append(topic).stage(kafka(["z"], ["1"], partition=ints(0)))
    vacuum(topic)
    vacuum_at_once(topic)
    plan_append(topic, refresh=False).commit([staged], keep_files=True)
    assert records(topic)[0][-1][1:] == (b"z", b"1")
    assert topic.verify(data=True)


def two_indexes(inner: ObjectStore, time: FakeTime) -> tuple[Topic, Topic]:
    """A topic with roots at versions 8 and 12, each with its own leaf, and a reader whose state
    uses the first."""
    topic = Store(inner, time.runtime()).create_topic(NAME, 1, config={"retention.ms": -1})
    for _ in range(8):
        put(topic, "ab", "12", 0)
    reader = Store(inner, time.runtime()).topic(NAME)
    for _ in range(4):
        put(topic, "ab", "12", 0)
    first, second = reader.at().snapshot, topic.at().snapshot
    assert (first.root_version, second.root_version) == (8, 12)
    assert first.leaves
    assert not set(first.leaves) & set(second.leaves)
    return topic, reader


def test_long_lived_reader_does_not_need_removed_leaves() -> None:
    """It reads the topic every day, there are few commits, and vacuum removes the older index."""
    time = FakeTime()
    inner = MemoryStore(clock=time.clock).with_limits(replace(SMALL, root_grace=4))
    _, reader = two_indexes(inner, time)

    removed: list[str] = []
    for _ in range(10):
        time.seconds += DAY
        removed += Store(inner, time.runtime()).topic(NAME).vacuum(dry_run=False).files
        reader._log.manifest.leaves._cached.clear()
        assert len(records(reader)[0]) == 24
    assert [path for path in removed if "leaf-" in path]


@pytest.mark.parametrize("fails", [".root.json", "leaf-", "_head.json"])
def test_vacuum_that_cannot_write_an_index_keeps_the_files_of_the_old_one(fails: str) -> None:
    """The hint still names the old root: a reader that begins there finds all it needs [VAC-3]."""
    time = FakeTime()
    inner = MemoryStore(clock=time.clock).with_limits(SMALL)
    topic, _ = two_indexes(inner, time)
    before = records(topic)
    time.seconds += WEEKS

    def decide(verb: str, key: str) -> Fault | None:
        is_index = verb in ("create", "write") and (fails in key or key.endswith("_head.json"))
        return Fault.REFUSE if is_index else None

    cleaner = Store(FaultyStore(inner, decide), time.runtime()).topic(NAME)
    inner.write(f"{NAME}/_manifest/_head.json", b'{"root_version":8}')
    cleaner.vacuum(dry_run=False)
    assert records(Store(inner, time.runtime()).topic(NAME)) == before
    Store(inner, time.runtime()).topic(NAME).vacuum(dry_run=False)
    assert records(Store(inner, time.runtime()).topic(NAME)) == before
    assert not [entry.key for entry in inner.list() if f"{8:020d}.root" in entry.key]


def test_job_on_a_deleted_topic_is_an_error_and_leaves_no_files(base: MemoryStore) -> None:
    inner = copy_of(base)
    topic = open_at(inner, WEEKS)
    other = Store(inner, FakeTime(WEEKS).runtime())
    with pytest.raises(TopicNotFoundError):
        run_job(topic, Compaction(force=True), after_the_work(lambda: other.delete_topic(NAME)))
    assert data_files(inner) == set()
