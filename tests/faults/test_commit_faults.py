"""Topics on a store that loses replies, answers late, refuses and crashes between steps."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from pylogtable.append.report import placed_by
from pylogtable.engine import plan_append
from pylogtable.errors import (
    CommitConflictError,
    CommitUnknownError,
    InvalidRequestError,
    LogTableError,
    StorageError,
    TopicExistsError,
    TopicNotFoundError,
    UnsupportedFormatError,
)
from pylogtable.format.json_codec import decode_hint
from pylogtable.format.paths import HINT_PATH, commit_path, parse_commit_path, root_path
from pylogtable.limits import Limits
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.builders import Clock, appends_in
from tests.depth import new_seed, rounds, sample
from tests.faults.support import (
    NAME,
    PARTITIONS,
    SCHEMA,
    FakeTime,
    Plan,
    check,
    check_sound,
    commits_of,
    copy_of,
    data_files,
    faulty,
    named_files,
    new_topic,
    numbers_of,
    open_topic,
    rows,
    store_over,
)
from tests.stores import Fault, FaultyStore, SimulatedCrash

OLD = range(4)
MINE = range(4, 8)
OTHERS = range(100, 103)
TXN = ("app", 7)
DENIED = "access denied, said the store"
#: Enough for what these tests append to go into its commit.
INLINE = 4096


@pytest.fixture
def inner() -> MemoryStore:
    store = MemoryStore()
    new_topic(store).append(rows(OLD))
    return store


def is_commit(verb: str, key: str) -> bool:
    return verb == "create" and key.endswith(".json") and ".root." not in key


def on_commits(*faults: Fault | Exception | None) -> Callable[[str, str], Fault | None]:
    """The n-th put of a commit meets the n-th fault; the rest go through."""
    coming = iter(faults)

    def decide(verb: str, key: str) -> Fault | None:
        fault = next(coming, None) if is_commit(verb, key) else None
        if isinstance(fault, Exception):
            raise fault
        return fault

    return decide


def always(fault: Fault) -> Callable[[str, str], Fault | None]:
    return lambda verb, key: fault if is_commit(verb, key) else None


class TestOneWriter:
    @pytest.mark.parametrize(
        "faults",
        [
            (Fault.LOSE_REPLY,),
            (Fault.SELF_RETRY,),
            (Fault.REFUSE,),
            (Fault.REFUSE, Fault.REFUSE, Fault.LOSE_REPLY),
            (Fault.REFUSE, Fault.SELF_RETRY),
            (Fault.LATE, Fault.REFUSE),
            (Fault.LATE, Fault.LATE, Fault.LATE),
        ],
        ids=lambda faults: "-".join(fault.name for fault in faults),
    )
    @pytest.mark.parametrize("late_after", [None, 1, 2, 3, 4])
    @pytest.mark.parametrize("inline_bytes", [0, INLINE])
    def test_commit_with_a_lost_reply_lands_once(
        self, faults: tuple[Fault, ...], late_after: int | None, inline_bytes: int
    ) -> None:
        inner = MemoryStore()
        new_topic(inner, inline_bytes).append(rows(OLD))
        store = FaultyStore(inner, on_commits(*faults), late_after=late_after)
        topic = open_topic(store)
        result = topic.append(rows(MINE))
        store.land()
        assert result.version == 2
        assert result.offsets == {0: (2, 4), 1: (2, 4)}
        assert not result.repeated
        check(inner, [*OLD, *MINE])
        assert data_files(inner) == named_files(inner)
        topic.append(rows([8]))
        check(inner, [*OLD, *MINE, 8])

    def test_refused_commit_leaves_its_files_to_vacuum(self, inner: MemoryStore) -> None:
        """Once something was sent, a refusal is no proof that nothing names them [STORE-3]."""
        topic = faulty(inner, on_commits(StorageError(DENIED)))
        before = data_files(inner)
        with pytest.raises(StorageError, match=DENIED) as caught:
            topic.append(rows(MINE))
        assert caught.value.may_have_landed
        check(inner, OLD)
        assert len(data_files(inner) - before) == PARTITIONS
        assert topic.append(rows(MINE)).version == 2
        check(inner, [*OLD, *MINE])

    def test_refusal_after_an_unknown_outcome_stays_unknown(self, inner: MemoryStore) -> None:
        """The first put may still land, so the refusal of the second proves nothing."""
        faults = [Fault.LATE, *(StorageError(DENIED) for _ in range(100))]
        store = FaultyStore(inner, on_commits(*faults))
        topic = open_topic(store, patience_seconds=1)
        with pytest.raises(CommitUnknownError) as caught:
            topic.append(rows(MINE))
        store.land()
        check(inner, [*OLD, *MINE])
        assert topic.find_commit(caught.value.commit_id, caught.value.version) == 2

    def test_files_that_waited_too_long_are_not_committed(self, inner: MemoryStore) -> None:
        """Vacuum may have removed them."""
        time = FakeTime()
        topic = Store(inner, time.runtime()).topic(NAME)
        before = data_files(inner)
        fresh, old = plan_append(topic).stage(rows([8])), plan_append(topic).stage(rows(MINE))
        time.pause(3 * 86_400)
        assert plan_append(topic, refresh=False).commit([fresh], keep_files=True).version == 2
        time.pause(86_400)
        with pytest.raises(CommitConflictError, match="vacuum may have removed them"):
            plan_append(topic, refresh=False).commit([old], keep_files=True)
        check(inner, [*OLD, 8])
        plan_append(topic, refresh=False).discard([old])
        assert len(data_files(inner)) == len(before) + 1

    @pytest.mark.parametrize("verb", ["open_output", "read"])
    def test_failure_before_the_commit_leaves_no_files(self, inner: MemoryStore, verb: str) -> None:
        plan = Plan(0, Fault.REFUSE, lambda asked, key: asked == verb)
        plan.armed = False
        topic = faulty(inner, plan)
        plan.armed = True
        before = data_files(inner)
        with pytest.raises(StorageError):
            topic.append(rows(MINE))
        assert plan.hit
        assert data_files(inner) == before
        check(inner, OLD)

    def test_failed_read_back_is_retried(self, inner: MemoryStore) -> None:
        doubtful = False
        failures = 0

        def decide(verb: str, key: str) -> Fault | None:
            nonlocal doubtful, failures
            if is_commit(verb, key) and not doubtful:
                doubtful = True
                return Fault.LOSE_REPLY
            if doubtful and verb == "read" and failures < 5:
                failures += 1
                return Fault.REFUSE
            return None

        result = faulty(inner, decide).append(rows(MINE))
        assert failures == 5
        assert result.version == 2
        check(inner, [*OLD, *MINE])


class TestUnknown:
    def test_error_names_the_commit_and_no_file_is_deleted(self, inner: MemoryStore) -> None:
        time = FakeTime()
        store = FaultyStore(inner, always(Fault.REFUSE))
        topic = Store(store, time.runtime(patience_seconds=30)).topic(NAME)
        before = data_files(inner)
        with pytest.raises(CommitUnknownError) as caught:
            topic.append(rows(MINE))
        assert 30 < time.seconds < 33
        assert caught.value.version == 2
        assert caught.value.commit_id in str(caught.value)
        assert len(data_files(inner) - before) == PARTITIONS
        check(inner, OLD)

    def test_find_commit_finds_a_commit_that_landed(self, inner: MemoryStore) -> None:
        store = FaultyStore(inner, always(Fault.LATE))
        with pytest.raises(CommitUnknownError) as caught:
            open_topic(store, patience_seconds=1).append(rows(MINE))
        clean = open_topic(inner)
        store.land()
        error = caught.value
        assert clean.find_commit(error.commit_id, error.version) == error.version
        assert clean.find_commit(error.commit_id) == error.version
        check(inner, [*OLD, *MINE])

    def test_find_commit_returns_none_where_another_commit_won(self, inner: MemoryStore) -> None:
        store = FaultyStore(inner, always(Fault.LATE))
        with pytest.raises(CommitUnknownError) as caught:
            open_topic(store, patience_seconds=1).append(rows(MINE))
        clean = open_topic(inner)
        clean.append(rows(OTHERS))
        store.land()
        error = caught.value
        assert clean.find_commit(error.commit_id, error.version) is None
        assert clean.find_commit(error.commit_id) is None
        check(inner, [*OLD, *OTHERS])

    @pytest.mark.parametrize("lands", ["before", "after", "never"])
    def test_repeat_with_the_same_txn_appends_exactly_once(
        self, inner: MemoryStore, lands: str
    ) -> None:
        store = FaultyStore(inner, always(Fault.LATE))
        with pytest.raises(CommitUnknownError):
            open_topic(store, patience_seconds=1).append(rows(MINE), txn=TXN)
        clean = open_topic(inner)
        if lands == "before":
            store.land()
        result = clean.append(rows(MINE), txn=TXN)
        if lands == "after":
            store.land()
        assert result.repeated == (lands == "before")
        assert result.offsets == {0: (2, 4), 1: (2, 4)}
        check(inner, [*OLD, *MINE])

    def test_repeat_by_the_same_writer_before_its_first_put_lands(self, inner: MemoryStore) -> None:
        faults = [Fault.LATE] * 20
        store = FaultyStore(
            inner, lambda v, k: faults.pop() if is_commit(v, k) and faults else None
        )
        topic = open_topic(store, patience_seconds=0.01)
        with pytest.raises(CommitUnknownError):
            topic.append(rows(MINE), txn=TXN)
        assert store.late
        faults.clear()
        topic.append(rows(OTHERS))
        store.land()
        result = topic.append(rows(MINE), txn=TXN)
        assert not result.repeated
        check(inner, [*OLD, *MINE, *OTHERS])

    @pytest.mark.parametrize("lands", [True, False])
    def test_alter_and_create_with_an_unknown_outcome(
        self, inner: MemoryStore, lands: bool
    ) -> None:
        store = FaultyStore(inner, always(Fault.LATE))
        topic = open_topic(store, patience_seconds=1)
        with pytest.raises(CommitUnknownError) as caught:
            topic.alter(partitions=5)
        with pytest.raises(CommitUnknownError):
            store_over(store, 1).create_topic("new", 3, SCHEMA)
        if lands:
            store.land()
        clean = open_topic(inner)
        assert len(clean.end_offsets()) == (5 if lands else 2)
        assert clean.find_commit(caught.value.commit_id) == (2 if lands else None)
        assert store_over(inner).topics() == (["new", NAME] if lands else [NAME])
        check_sound(inner, clean)


class TestTwoWriters:
    """The second writer appends while the first is in the middle of a step."""

    @pytest.mark.parametrize("others", [1, 3])
    @pytest.mark.parametrize(
        "fault",
        [None, Fault.LOSE_REPLY, Fault.SELF_RETRY, Fault.REFUSE, Fault.LATE],
        ids=lambda fault: fault.name if fault else "none",
    )
    def test_other_writer_commits_just_before_the_put(
        self, inner: MemoryStore, fault: Fault | None, others: int
    ) -> None:
        other = open_topic(inner)
        won: list[int] = []

        def decide(verb: str, key: str) -> Fault | None:
            if is_commit(verb, key) and not won:
                won.extend(other.append(rows(OTHERS)).version for _ in range(others))
                return fault
            return None

        store = FaultyStore(inner, decide)
        result = open_topic(store).append(rows(MINE))
        store.land()
        assert won == list(range(2, 2 + others))
        assert result.version == 2 + others
        assert result.offsets == {0: (2 + 2 * others, 4 + 2 * others), 1: (2 + others, 4 + others)}
        assert numbers_of(open_topic(inner)) == sorted([*OLD, *MINE, *(list(OTHERS) * others)])
        check_sound(inner, open_topic(inner))

    @pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.LATE, Fault.LOSE_REPLY])
    def test_other_writer_commits_before_the_read_back(
        self, inner: MemoryStore, fault: Fault
    ) -> None:
        other = open_topic(inner)
        state = "begin"

        def decide(verb: str, key: str) -> Fault | None:
            nonlocal state
            if is_commit(verb, key) and state == "begin":
                state = "doubt"
                return fault
            if verb == "read" and state == "doubt":
                state = "looked"
                other.append(rows(OTHERS))
            return None

        store = FaultyStore(inner, decide)
        result = open_topic(store).append(rows(MINE))
        landed = store.land()
        assert state == "looked"
        assert result.version == (2 if fault is Fault.LOSE_REPLY else 3)
        assert len(landed) == (1 if fault is Fault.LATE else 0)
        check(inner, [*OLD, *MINE, *OTHERS])

    def test_late_put_lands_between_read_back_and_retry(self, inner: MemoryStore) -> None:
        store = FaultyStore(inner, on_commits(Fault.LATE), late_after=2)
        result = open_topic(store).append(rows(MINE))
        assert result.version == 2
        assert not store.late
        check(inner, [*OLD, *MINE])

    def test_two_writers_with_the_same_txn_append_once(self, inner: MemoryStore) -> None:
        zombie = open_topic(inner)
        first = []

        def decide(verb: str, key: str) -> Fault | None:
            if is_commit(verb, key) and not first:
                first.append(zombie.append(rows(MINE), txn=TXN))
            return None

        result = faulty(inner, decide).append(rows(MINE), txn=TXN)
        assert result.repeated
        assert (result.version, result.offsets) == (first[0].version, first[0].offsets)
        check(inner, [*OLD, *MINE])
        assert data_files(inner) == named_files(inner)

    def test_append_survives_many_lost_races(self, inner: MemoryStore) -> None:
        other = open_topic(inner)
        wins = 150

        def decide(verb: str, key: str) -> Fault | None:
            nonlocal wins
            if is_commit(verb, key) and wins:
                wins -= 1
                other.append(rows([200 + wins]))
            return None

        result = faulty(inner, decide, patience=0.0).append(rows(MINE))
        assert result.version == 152
        check(inner, [*OLD, *MINE, *range(200, 350)])

    def test_topic_deleted_before_the_put_is_an_error(self, inner: MemoryStore) -> None:
        def decide(verb: str, key: str) -> Fault | None:
            if is_commit(verb, key) and NAME in store_over(inner).topics():
                store_over(inner).delete_topic(NAME)
            return None

        with pytest.raises(TopicNotFoundError):
            faulty(inner, decide).append(rows(MINE))
        assert data_files(inner) == set()

    def test_topic_recreated_before_the_put_gets_no_rows(self, inner: MemoryStore) -> None:
        done: list[Topic] = []

        def decide(verb: str, key: str) -> Fault | None:
            if is_commit(verb, key) and not done:
                store_over(inner).delete_topic(NAME)
                done.append(new_topic(inner))
                done[0].append(rows(OTHERS))
            return None

        with pytest.raises(TopicNotFoundError, match="another one was created in its place"):
            faulty(inner, decide).append(rows(MINE))
        assert numbers_of(open_topic(inner)) == sorted(OTHERS)
        assert len(data_files(inner)) == PARTITIONS


@pytest.fixture(scope="module")
def full_store() -> MemoryStore:
    return _before_a_root(0)


@pytest.fixture(scope="module")
def full_inline_store() -> MemoryStore:
    return _before_a_root(INLINE)


def _before_a_root(inline_bytes: int) -> MemoryStore:
    """One commit before a root is due, and enough segments that it needs a leaf."""
    store = MemoryStore().with_limits(Limits(tail_max=3))
    topic = new_topic(store, inline_bytes)
    topic.append(rows(OLD))
    for number in range(61):
        topic.append(rows([]), txn=("filler", number))
    topic.append(rows([50, 51]))
    assert topic.version == 63
    return store


def is_index(verb: str, key: str) -> bool:
    return any(part in key for part in ("leaf-", ".root.", "_head")) and verb != "read"


class TestTheIndex:
    """The root is written after the commit, so a failure there must not fail the commit."""

    @pytest.mark.parametrize(
        "fault",
        [*(f for f in Fault if "CRASH" not in f.name), StorageError(DENIED)],
        ids=lambda fault: getattr(fault, "name", "DENIED"),
    )
    @pytest.mark.parametrize("at", [0, 1, 2], ids=["leaf", "root", "hint"])
    def test_fault_while_writing_the_index_never_fails_an_append(
        self, full_store: MemoryStore, fault: Fault | Exception, at: int
    ) -> None:
        inner = copy_of(full_store)
        plan = Plan(at, fault, is_index)
        topic = faulty(inner, plan)
        result = topic.append(rows(MINE))
        assert plan.hit
        assert result.version == 64
        if fault is Fault.TRUNCATE and at == 0:
            # A store that cuts an object and says it did not: found, named, never believed.
            assert any(p.rule == "SUM-2" for p in open_topic(inner).verify(data=True).problems)
            return
        check(inner, [*OLD, 50, 51, *MINE])
        for number in range(80):
            topic.append(rows([]), txn=("more", number))
        healed = check(inner, [*OLD, 50, 51, *MINE])
        hint = decode_hint(inner.below(NAME).read(HINT_PATH) or b"")
        assert hint is not None
        assert hint.root_version in (128, 144)
        assert healed.version == 144

    @pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.LOSE_REPLY])
    def test_fault_while_reading_the_hint_never_fails_an_append(
        self, full_store: MemoryStore, fault: Fault
    ) -> None:
        inner = copy_of(full_store)
        plan = Plan(0, fault, lambda verb, key: key.endswith("_head.json"))
        plan.armed = False
        topic = faulty(inner, plan)
        plan.armed = True
        assert topic.append(rows(MINE)).version == 64
        assert plan.hit
        check(inner, [*OLD, 50, 51, *MINE])

    def test_newer_format_seen_after_the_commit_does_not_fail_it(
        self, full_store: MemoryStore
    ) -> None:
        """Another writer commits with a newer format between the commit and its root."""
        inner = copy_of(full_store)
        topic_store = inner.below(NAME)
        newer = (
            b'{"operation":"alter","version":65,"commit_id":"x","topic_id":"y",'
            b'"committed_at_ms":99999999999999,"protocol":{"format":1,"reader_features":["zz"]}}'
        )

        def decide(verb: str, key: str) -> Fault | None:
            if verb == "read" and key.endswith("_head.json") and armed:
                other = open_topic(inner)
                other._log.manifest.write_root(other._log.latest(), lambda: "aa")
                topic_store.create(commit_path(65), newer)
            return None

        armed = False
        topic = faulty(inner, decide)
        armed = True
        before = data_files(inner)
        result = topic.append(rows(MINE))
        assert result.version == 64
        assert len(data_files(inner) - before) == PARTITIONS
        with pytest.raises(UnsupportedFormatError, match="zz"):
            open_topic(inner)

    @pytest.mark.parametrize("succeeded", [True, False])
    @pytest.mark.parametrize(
        "act",
        [
            lambda topic: topic.append(rows(MINE)).version == 64,
            lambda topic: topic.alter(partitions=3).version == 64,
            lambda topic: topic.delete_records({0: 1, 1: None}) == {0: 1, 1: 3},
        ],
        ids=["append", "alter", "delete_records"],
    )
    def test_topic_deleted_after_the_commit_does_not_fail_it(
        self, full_store: MemoryStore, act: Callable[[Topic], bool], succeeded: bool
    ) -> None:
        """The topic is deleted, and perhaps created again, between the commit and its root."""
        inner = copy_of(full_store)

        def decide(verb: str, key: str) -> Fault | None:
            nonlocal armed
            if verb == "read" and key.endswith("_head.json") and armed:
                armed = False
                store_over(inner).delete_topic(NAME)
                if succeeded:
                    new_topic(inner).append(rows(OTHERS))
            return None

        armed = False
        topic = faulty(inner, decide)
        armed = True
        assert act(topic)
        assert not armed
        assert store_over(inner).topics() == ([NAME] if succeeded else [])
        if succeeded:
            assert numbers_of(open_topic(inner)) == sorted(OTHERS)
        with pytest.raises(TopicNotFoundError):
            topic.append(rows(MINE))


@dataclass(frozen=True)
class Step:
    """One thing a writer does. `base` is the store before it; `done` is True if it was done."""

    name: str
    base: Callable[[MemoryStore], MemoryStore]
    act: Callable[[FaultyStore], object]
    done: Callable[[MemoryStore], bool]
    again: Callable[[MemoryStore], object]


def _small(full: MemoryStore) -> MemoryStore:
    store = MemoryStore()
    new_topic(store).append(rows(OLD))
    return store


def _append(store: FaultyStore | MemoryStore) -> object:
    return open_topic(store, 1).append(rows(MINE), txn=TXN)


def _has_mine(store: MemoryStore) -> bool:
    there = [n for n in numbers_of(open_topic(store)) if n in MINE]
    assert there in ([], list(MINE))
    return bool(there)


def _quietly(act: Callable[[MemoryStore], object]) -> Callable[[MemoryStore], object]:
    """A repeat that may find its work done already."""

    def again(store: MemoryStore) -> object:
        try:
            return act(store)
        except (InvalidRequestError, TopicExistsError):
            return None

    return again


def _exists(store: MemoryStore) -> bool:
    return NAME in store_over(store).topics()


STEPS = [
    Step("append", _small, _append, _has_mine, _append),
    Step("append_with_root", copy_of, _append, _has_mine, _append),
    Step(
        "create",
        lambda full: MemoryStore(),
        lambda store: store_over(store, 1).create_topic(NAME, PARTITIONS, SCHEMA),
        _exists,
        _quietly(lambda store: new_topic(store)),
    ),
    Step(
        "alter",
        _small,
        lambda store: open_topic(store, 1).alter(partitions=3),
        lambda store: len(open_topic(store).end_offsets()) == 3,
        _quietly(lambda store: open_topic(store).alter(partitions=3)),
    ),
    Step(
        "delete_records",
        _small,
        lambda store: open_topic(store, 1).delete_records({0: 1, 1: None}),
        lambda store: open_topic(store).start_offsets() == {0: 1, 1: 2},
        lambda store: open_topic(store).delete_records({0: 1, 1: None}),
    ),
    Step(
        "delete_topic",
        copy_of,
        lambda store: store_over(store, 1).delete_topic(NAME),
        lambda store: not _exists(store),
        _quietly(lambda store: store_over(store).delete_topic(NAME)),
    ),
]

#: Faults that the operation may report with an error; after these the step is wholly done or not.
EVERY_FAULT: list[Fault | Exception] = [
    *(fault for fault in Fault if fault is not Fault.TRUNCATE),
    StorageError(DENIED),
]


def _cases(
    step: Step, full: MemoryStore, late: int | None
) -> Iterator[tuple[int, Fault | Exception]]:
    """The number of each operation of a step, with the faults to try there: all of them in a deep
    run, otherwise a third of them, and another third for the next operation."""
    plan = Plan(None, None)
    step.act(FaultyStore(step.base(full), plan))
    faults = EVERY_FAULT if late is None else [Fault.LATE]
    for at, (verb, key) in enumerate(plan.seen):
        number = parse_commit_path(key.removeprefix(f"{NAME}/"))
        if verb == "read" and number is not None and 2 < number < 62:
            continue  # one of many alike
        for fault in faults if late else sample(faults, 3, first=at):
            yield at, fault


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
@pytest.mark.parametrize("late", [1, 3, None])
def test_any_fault_at_any_operation_leaves_a_sound_topic(
    full_store: MemoryStore, step: Step, late: int | None
) -> None:
    _check_any_fault(full_store, step, late, files=PARTITIONS)


@pytest.mark.parametrize("step", [s for s in STEPS if "append" in s.name], ids=lambda s: s.name)
@pytest.mark.parametrize("late", [1, None])
def test_any_fault_beside_records_in_commits_leaves_a_sound_topic(
    full_inline_store: MemoryStore, step: Step, late: int | None
) -> None:
    _check_any_fault(full_inline_store, step, late, files=0)


def _check_any_fault(full: MemoryStore, step: Step, late: int | None, files: int) -> None:
    """After any fault at any step the topic opens, the change is complete or absent, the caller was
    told the truth, and a repeat makes the change once. An append writes this many `files`."""
    ran = set()
    for at, fault in _cases(step, full, late):
        inner = step.base(full)
        plan = Plan(at, fault)
        store = FaultyStore(inner, plan, late_after=late)
        told = "success"
        before = data_files(inner) if _exists(inner) else set()
        try:
            step.act(store)
        except SimulatedCrash:
            told = "crash"
        except CommitUnknownError:
            told = "unknown"
        except LogTableError:
            told = "failure"
        plan.armed = False
        store.land()
        where = f"{step.name}: {fault} at {at} {plan.seen[at]}, told {told}"
        done = step.done(inner)
        if told == "success":
            assert done, where
        if told == "failure" and step.name in ("alter", "delete_records"):
            assert not done, where
        if told == "failure" and step.name.startswith("append"):
            assert not done, where
            leftover = data_files(inner) - before
            # A file that was not completed, or of a commit that was sent, is left to vacuum.
            assert not leftover or plan.seen[at][0] in ("open_output", "create"), where
        if told == "unknown":
            assert len(data_files(inner) - before) == files or "append" not in step.name
        if _exists(inner):
            check_sound(inner, open_topic(inner))
        step.again(inner)
        assert step.done(inner), where
        if _exists(inner):
            check_sound(inner, open_topic(inner))
            assert named_files(inner) <= data_files(inner), where
        elif step.name == "delete_topic":
            anew = new_topic(inner)
            anew.append(rows(OTHERS))
            assert numbers_of(anew) == sorted(OTHERS)
        ran.add((at, str(fault)))
    print(f"{step.name}: {len(ran)} faults")
    assert len({at for at, _ in ran}) >= 4
    assert len({fault for _, fault in ran}) == (len(EVERY_FAULT) if late is None else 1)


@pytest.mark.parametrize("is_remote", [False, True])
@pytest.mark.parametrize("inline_bytes", [0, INLINE])
def test_random_faults_lose_and_duplicate_nothing(
    monkeypatch: pytest.MonkeyPatch, is_remote: bool, inline_bytes: int
) -> None:
    """Three writers take turns, and every other put of a commit meets a fault."""
    monkeypatch.setattr(MemoryStore, "is_remote", is_remote)
    monkeypatch.setattr(MemoryStore, "concurrency", 8 if is_remote else 1)
    seed = new_seed()
    chance = random.Random(seed)
    inner = MemoryStore(clock=Clock())
    new_topic(inner, inline_bytes)
    kinds = [Fault.LOSE_REPLY, Fault.REFUSE, Fault.LATE, Fault.SELF_RETRY]
    faults = {"all": 0, "commits": 0}

    def decide(verb: str, key: str) -> Fault | None:
        if verb == "open_output" or chance.random() > (0.5 if is_commit(verb, key) else 0.05):
            return None
        faults["all"] += 1
        faults["commits"] += is_commit(verb, key)
        return chance.choice(kinds)

    stores = [FaultyStore(inner, decide, late_after=n) for n in (1, 3, 7)]
    writers: list[Topic | None] = [None] * len(stores)
    acknowledged: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
    numbers: list[int] = []
    number = 0
    while faults["commits"] < rounds(60, deep=5000):
        which = chance.randrange(len(stores))
        mine = range(number, number + chance.randrange(1, 4))
        number = mine.stop
        result = None
        while result is None:  # the application repeats what it was not told to have succeeded
            with suppress(CommitUnknownError, StorageError):
                if writers[which] is None or chance.random() < 0.01:
                    writers[which] = open_topic(stores[which], chance.choice([0.0, 0.01, 1]))
                result = writers[which].append(rows(mine), txn=(f"w{which}", mine.start))
        acknowledged[which, mine.start] = result.offsets
        numbers.extend(mine)
    for store in stores:
        store.land()
    print(f"{faults}, {len(acknowledged)} appends")
    topic = check(inner, numbers)
    carried = {
        (int(txn.app_id[1:]), txn.version): placed_by(commit, txn)[0]
        for commit in commits_of(inner)
        for txn in commit.txns
    }
    assert carried == acknowledged
    assert appends_in(topic) == len(acknowledged)


def test_root_that_lands_late_changes_nothing(full_store: MemoryStore) -> None:
    """Other writers have written newer roots by then."""
    inner = copy_of(full_store)
    plan = Plan(0, Fault.LATE, lambda verb, key: ".root." in key and verb == "create")
    store = FaultyStore(inner, plan)
    open_topic(store).append(rows(MINE))
    other = open_topic(inner)
    for number in range(70):
        other.append(rows([]), txn=("more", number))
    assert store.late == 1
    store.land()
    assert inner.below(NAME).read(root_path(64)) is not None
    check(inner, [*OLD, 50, 51, *MINE])
