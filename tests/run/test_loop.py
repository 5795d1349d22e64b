"""What a loop does and when, with a clock that is moved by hand."""

from __future__ import annotations

import itertools
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from pylogtable import Store, Topic
from pylogtable.errors import CorruptTopicError, StorageError
from pylogtable.format.paths import commit_path
from pylogtable.jobs.merge import Merge
from pylogtable.jobs.work import Rewritten, RunUnits, Worker, in_threads
from pylogtable.run import JobRun, Loop, RunOptions
from pylogtable.run.due_plan import HOUR_MS, MINUTE_MS
from pylogtable.run.kept_topic import KeptTopic
from pylogtable.run.lanes import OneThread
from pylogtable.run.loop import DISCOVERY_MS, NO_TOPIC_MS, UNREADABLE_MS
from pylogtable.run.members import BEAT_MS, LEASE_MS, MEMBERS_DIR
from pylogtable.storage.memory import MemoryStore
from tests.builders import (
    IN_FILES,
    Clock,
    contents,
    kafka,
    keep_time,
    limited,
    make_store,
    put_back,
    runtime,
)
from tests.publish.plain_delta import check_table, entries, rows, shown_version
from tests.run.loops import Driven, driven, one_by_one, together
from tests.stores import CountingStore, FailingStore, FarStore

SECOND_MS = 1_000
PUBLISHED = {"publish.formats": "delta"}


@pytest.fixture
def loop(store: Store, clock: Clock) -> Driven:
    return driven(store, clock)


def append(topic: Topic, keys: str = "ab") -> None:
    topic.append(kafka(list(keys)))


def is_shown(objects: MemoryStore, topic: Topic) -> bool:
    """Whether the table of a topic shows its newest records, and each version was right."""
    log = check_table(topic, objects.below(topic.name))
    newest = topic.read().read_all()
    return bool(log) and topic.read(version=shown_version(log[-1])).read_all() == newest


class TestTopicsThatComeAndGo:
    def test_new_topic_is_found(self, loop: Driven, store: Store) -> None:
        loop.go(SECOND_MS)
        store.create_topic("new")
        loop.go(DISCOVERY_MS)
        assert {run.topic for run in loop.runs} == {"new"}

    def test_nothing_is_written_where_there_is_no_topic(
        self, loop: Driven, store: Store, objects: MemoryStore
    ) -> None:
        loop.go(HOUR_MS)
        assert not list(objects.list())
        append(topic := store.create_topic("first", config=PUBLISHED))
        loop.go(DISCOVERY_MS)
        assert is_shown(objects, topic)

    def test_deleted_topic_is_let_go(
        self, loop: Driven, store: Store, objects: MemoryStore, clock: Clock
    ) -> None:
        append(store.create_topic("gone"))
        loop.go(SECOND_MS)
        store.delete_topic("gone")
        loop.go(DISCOVERY_MS)
        loop.runs.clear()
        loop.go(HOUR_MS)
        assert not loop.runs

    def test_topics_that_are_all_gone_are_missed_once(
        self, loop: Driven, store: Store, objects: MemoryStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A disk that is not mounted any more looks like that."""
        for name in ("a", "b"):
            store.create_topic(name)
        loop.go(SECOND_MS)
        put_back(objects, {})
        loop.go(HOUR_MS)
        assert caplog.text.count("are gone: is its disk mounted?") == 1

    def test_topic_that_was_created_anew_is_another_one(
        self, loop: Driven, store: Store, objects: MemoryStore
    ) -> None:
        append(store.create_topic("again", config=PUBLISHED))
        loop.go(SECOND_MS)
        store.delete_topic("again")
        append(anew := store.create_topic("again", config=PUBLISHED), "xyz")
        loop.go(10 * SECOND_MS)
        assert not [run for run in loop.runs if run.error]
        assert is_shown(objects, anew)

    def test_only_the_topics_asked_for(self, store: Store, clock: Clock) -> None:
        for name in ("a", "b"):
            append(store.create_topic(name))
        chosen = driven(store, clock, topics=["b", "later"])
        chosen.go(SECOND_MS)
        store.create_topic("later")
        chosen.go(NO_TOPIC_MS)
        assert {run.topic for run in chosen.runs} == {"b", "later"}

    def test_topic_that_was_asked_for_is_missed_once(
        self, store: Store, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Not if it is deleted and created anew meanwhile, and again if it is gone again."""

        def told() -> list[str]:
            found = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
            caplog.clear()
            return found

        for name in ("named", "other"):
            store.create_topic(name)
        chosen, every = driven(store, clock, topics=["named"]), driven(store, clock)
        message = "there is no topic named; it is looked after once it is created"
        for _ in range(2):
            together([chosen, every], clock, SECOND_MS)
            assert told() == []
            for name in ("named", "other"):
                store.delete_topic(name)
            together([chosen, every], clock, 5 * NO_TOPIC_MS)
            assert told() == [message]
            for name in ("named", "other"):
                store.create_topic(name)
            together([chosen, every], clock, NO_TOPIC_MS)
        store.delete_topic("named")
        store.create_topic("named")
        together([chosen, every], clock, NO_TOPIC_MS)
        assert told() == []

    def test_folder_that_is_no_topic_is_asked_from_time_to_time(
        self, objects: MemoryStore, clock: Clock
    ) -> None:
        objects.write("folder/file", b"data")
        counting = CountingStore(objects)
        loop = driven(make_store(counting, clock), clock)
        loop.go(HOUR_MS)
        asked = sum(n for (_, key), n in counting.by_key.items() if key.startswith("folder/"))
        assert asked <= 4 * HOUR_MS // NO_TOPIC_MS
        assert not loop.runs


class TestFailures:
    def test_damaged_topic_does_not_stop_the_others_and_is_looked_at_again(
        self, loop: Driven, store: Store, objects: MemoryStore
    ) -> None:
        broken = store.create_topic("broken", config=PUBLISHED)
        whole = store.create_topic("whole", config=PUBLISHED)
        append(broken)
        good = objects.read(f"broken/{commit_path(1)}")
        assert good is not None
        objects.write(f"broken/{commit_path(1)}", b"{")
        append(whole)
        loop.go(10 * SECOND_MS)
        assert is_shown(objects, whole)
        (failed,) = loop.of("look")
        assert failed.topic == "broken"
        assert isinstance(failed.error, CorruptTopicError)
        objects.write(f"broken/{commit_path(1)}", good)
        loop.go(UNREADABLE_MS)
        assert is_shown(objects, broken)

    def test_store_that_fails_for_a_while_delays_the_work_only(
        self, objects: MemoryStore, clock: Clock
    ) -> None:
        store = make_store(objects, clock)
        append(topic := store.create_topic("t", config=PUBLISHED))
        failing = FailingStore(objects)
        is_down = False
        failing.fails = lambda verb, key: is_down
        loop = driven(make_store(failing, clock), clock)
        loop.go(SECOND_MS)
        is_down = True
        append(topic)
        loop.go(10 * MINUTE_MS)
        assert all(isinstance(run.error, StorageError) for run in loop.of("look"))
        is_down = False
        loop.go(UNREADABLE_MS + LEASE_MS)
        assert is_shown(objects, topic)

    def test_look_that_fails_does_not_put_off_a_vacuum(
        self, objects: MemoryStore, clock: Clock
    ) -> None:
        append(make_store(objects, clock).create_topic("t"))
        failing = FailingStore(objects)
        is_down = False
        failing.fails = lambda verb, key: is_down and key.startswith("t/")
        loop = driven(make_store(failing, clock), clock)
        for _ in range(6):
            loop.go(10 * MINUTE_MS)
            is_down = True
            loop.go(MINUTE_MS)
            is_down = False
        assert loop.of("look")
        assert len(loop.of("vacuum")) == 1

    def test_topic_that_is_deleted_during_a_job_is_no_failure(
        self, loop: Driven, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append(store.create_topic("t"))
        merge = Merge.run

        def late(self: Merge, *given: Any) -> Any:
            store.delete_topic("t")
            return merge(self, *given)

        monkeypatch.setattr(Merge, "run", late)
        loop.go(10 * MINUTE_MS)
        assert "t" not in store.topics()
        assert not [run for run in loop.runs if run.error]

    def test_bug_in_a_job_is_told_and_ends_nothing(
        self, loop: Driven, store: Store, objects: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append(topic := store.create_topic("t", config=PUBLISHED))

        def fail(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr("pylogtable.jobs.merge.Merge.run", fail)
        loop.go(MINUTE_MS)
        failed = loop.of("merge")
        assert {str(run.error) for run in failed} == {"ZeroDivisionError: a bug"}
        # After 1, 3, 7, 15, 31 seconds and so on.
        assert len(failed) == 5
        assert is_shown(objects, topic)

    def test_caller_that_fails_does_not_make_tables_late(
        self, store: Store, objects: MemoryStore, clock: Clock
    ) -> None:
        topic = store.create_topic("t", config=PUBLISHED)

        def fail(run: JobRun) -> None:
            raise OSError("the disk of the log is full")

        loop = Driven(Loop(store, RunOptions(on_job=fail), one_by_one, OneThread()), clock)
        for _ in range(3):
            append(topic)
            loop.go(2 * SECOND_MS)
            assert is_shown(objects, topic)

    def test_format_that_fails_does_not_make_the_other_table_late(
        self, objects: MemoryStore, clock: Clock
    ) -> None:
        config = {"publish.formats": "delta,iceberg"}
        append(topic := make_store(objects, clock).create_topic("t", config=config))
        failing = FailingStore(objects)
        is_down = True
        failing.fails = lambda verb, key: is_down and key.startswith("t/metadata/")
        loop = driven(make_store(failing, clock), clock)
        for _ in range(60):
            append(topic)
            loop.go(2 * SECOND_MS)
            assert topic.describe().published[0].lag_records == 0
        assert is_shown(objects, topic)
        runs = loop.of("publication")
        errors = [str(run.error) for run in runs if run.error]
        assert len(runs) - len(errors) >= 60
        # After 0, 2, 6, 14, 30 and 62 seconds.
        assert 5 <= len(errors) <= 7
        assert all(text.startswith("the iceberg table was not published: ") for text in errors)
        is_down = False
        loop.runs.clear()
        loop.go(5 * MINUTE_MS)
        assert not [run for run in loop.runs if run.error]
        statuses = topic.describe().published
        assert [status.lag_records for status in statuses] == [0, 0]

    def test_restored_topic_is_published_though_its_versions_are_older(
        self, loop: Driven, store: Store, objects: MemoryStore
    ) -> None:
        append(topic := store.create_topic("t", config=PUBLISHED))
        loop.go(10 * SECOND_MS)
        folder = objects.below("t/_manifest")
        backup = contents(folder)
        for keys in ("cd", "ef", "gh"):
            append(topic, keys)
            loop.go(10 * SECOND_MS)
        put_back(folder, backup)
        again = store.topic("t")
        append(again, "xy")
        loop.go(3 * MINUTE_MS)
        log = entries(objects.below("t"))
        found = rows(objects.below("t"), log, again.schema)
        assert [row["key"] for row in found] == again.read().read_all()["key"].to_pylist()

    def test_settings_that_change_between_look_and_job_are_no_failure(self, store: Store) -> None:
        """Where jobs have threads of their own, the topic is looked at while others wait."""
        topic = store.create_topic("t", config={"cleanup.policy": "compact"})
        kept = KeptTopic(store.topic("t"), RunOptions(), one_by_one, one_by_one)
        assert "compaction" in kept.look()
        topic.alter(config={"cleanup.policy": "delete"})
        kept.look()
        assert [run.error for run in kept.run("compaction")] == [None]


class TestClocks:
    @pytest.mark.parametrize("jump_ms", [-HOUR_MS, -5 * SECOND_MS, HOUR_MS])
    def test_clock_that_jumps_does_not_stop_the_loop(
        self, objects: MemoryStore, jump_ms: int
    ) -> None:
        """Within a lease and a few looks all goes on, as if nothing had been. The store has its own
        time."""
        clock = Clock()
        store = make_store(MemoryStore(clock=Clock()) if objects is None else objects, clock)
        topic = store.create_topic("t", config=PUBLISHED)
        append(topic)
        loop = driven(store, clock)
        loop.go(10 * MINUTE_MS)
        append(topic)
        clock.tick(jump_ms)
        loop.go(BEAT_MS + 2 * SECOND_MS)
        assert is_shown(objects, topic)
        for _ in range(3):
            append(topic)
            loop.go(2 * SECOND_MS)
            assert is_shown(objects, topic)
        store.create_topic("new")
        loop.go(DISCOVERY_MS)
        assert loop.of("retention", "new")


class TestSharing:
    @pytest.fixture
    def store(self, objects: MemoryStore, clock: Clock) -> Store:
        """Processes always have the same names here, and so the same topics."""
        keep_time(objects, clock)
        names = (f"{number:032x}" for number in itertools.count())
        return Store(objects, replace(runtime(clock), new_id=names.__next__))

    def test_two_loops_do_each_thing_once(
        self, store: Store, objects: MemoryStore, clock: Clock
    ) -> None:
        topics = [store.create_topic(f"t{n}", config=PUBLISHED) for n in range(8)]
        first, second = driven(store, clock), driven(store, clock)
        together([first, second], clock, MINUTE_MS)
        for loop in (first, second):
            loop.runs.clear()
        for topic in topics:
            append(topic)
        together([first, second], clock, MINUTE_MS)
        assert all(is_shown(objects, topic) for topic in topics)
        ours, theirs = ({run.topic for run in loop.of("publication")} for loop in (first, second))
        assert ours
        assert theirs
        assert not ours & theirs

    def test_spare_takes_over_what_a_killed_loop_has_left(
        self, store: Store, objects: MemoryStore, clock: Clock
    ) -> None:
        topics = [store.create_topic(f"t{n}", config=PUBLISHED) for n in range(8)]
        first, second = driven(store, clock), driven(store, clock)
        together([first, second], clock, MINUTE_MS)
        for topic in topics:
            append(topic)
        second.go(LEASE_MS + 2 * BEAT_MS)
        assert all(is_shown(objects, topic) for topic in topics)

    def test_loops_with_other_jobs_do_both(
        self, store: Store, objects: MemoryStore, clock: Clock
    ) -> None:
        topics = [store.create_topic(f"t{n}", config=PUBLISHED) for n in range(8)]
        publishes, rest = driven(store, clock, jobs=["publication"]), driven(store, clock)
        for topic in topics:
            append(topic)
        together([publishes, rest], clock, MINUTE_MS)
        names = {topic.name for topic in topics}
        assert {run.topic for run in publishes.of("publication")} == names
        assert {run.topic for run in rest.of("retention")} == names


class TestReports:
    def test_compaction_that_finds_nothing_to_remove_has_changed_nothing(
        self, loop: Driven, store: Store
    ) -> None:
        """It commits how far it has looked, so that it does not look there again."""
        config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}
        topic = store.create_topic("t", config=config)
        for keys, has_changed in (("ab", False), ("ac", True)):
            append(topic, keys)
            loop.runs.clear()
            loop.go(HOUR_MS)
            done = [run for run in loop.of("compaction") if run.report and run.report.units]
            assert [run.has_changed for run in done] == [has_changed]


class TestStopping:
    def test_mirror_is_left_to_the_next_process(self, store: Store, clock: Clock) -> None:
        append(topic := store.create_topic("t"))
        copies = make_store(MemoryStore(), clock)
        options = RunOptions(mirror_to=copies)
        for gives_up, version in ((True, None), (False, topic.version)):
            kept = KeptTopic(topic, options, one_by_one, one_by_one, lambda end=gives_up: end)
            (run,) = kept.run("mirror")
            assert run.error is None
            assert run.report.source_version == version

    def test_stop_between_units_commits_what_is_done(self, store: Store, clock: Clock) -> None:
        topic = store.create_topic("t", partitions=4, config=IN_FILES)
        for _ in range(12):
            topic.append(kafka(list("abcdefgh")))
        before = topic.read().read_all()
        loop: Loop

        def stopping(inner: RunUnits) -> RunUnits:
            def run_units(worker: Worker, units: Sequence[Any]) -> Iterable[Rewritten]:
                count = 0

                def work(unit: Any) -> Rewritten:
                    nonlocal count
                    count += 1
                    if count == 2:
                        loop.stop()
                    return worker(unit)

                return inner(work, units)  # type: ignore[arg-type]

            return run_units

        is_stopped: Callable[[], bool] = lambda: loop.is_stopped()  # noqa: E731
        loop = Loop(
            limited(store, small_work_bytes=0),
            RunOptions(jobs=["merge"], on_job=lambda run: loop.stop()),
            stopping(in_threads(1, is_stopped)),
            OneThread(),
        )
        loop.run()
        segments = Counter(topic.segments()["partition"].to_pylist())
        assert sorted(segments.values()) == [1, 1, 12, 12]
        assert topic.read().read_all().equals(before)
        assert topic.verify(data=True)

    def test_loop_that_ends_gives_its_claim_up(self, store: Store, objects: MemoryStore) -> None:
        store.create_topic("t")
        loop = Loop(store, RunOptions(on_job=lambda run: loop.stop()), lanes=OneThread())
        loop.run()
        assert not list(objects.list(MEMBERS_DIR))
        assert loop.is_stopped()

    def test_signal_that_comes_in_the_middle_of_its_sleep_stops_it(self, store: Store) -> None:
        """Python runs a handler between any two steps of the main thread, also while that holds
        the lock of what it waits for. A trace does the same here, in a thread of its own."""
        loop = Loop(store, RunOptions(), lanes=OneThread())
        signals = 5  # one at each of the first steps of the wait

        def stop(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal signals
            if frame.f_code.co_name in ("_sleep", "wait") and event == "line" and signals:
                signals -= 1
                loop.stop()
            return stop

        def run() -> None:
            sys.settrace(stop)
            loop.run()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(timeout=60)
        assert not thread.is_alive()

    def test_loop_with_threads_follows_topics_until_it_is_stopped(
        self, objects: MemoryStore
    ) -> None:
        """The lanes of users, and the machine's clock. What is told comes one after the other."""
        store = Store(objects, runtime(now_ms))
        topics = [store.create_topic(f"t{n}", config=PUBLISHED) for n in range(4)]
        for topic in topics:
            append(topic)
        left = {topic.name for topic in topics}
        telling, at_once, errors = threading.Lock(), [], []

        def stop_when_all_are_shown(run: JobRun) -> None:
            at_once.append(not telling.acquire(blocking=False))
            time.sleep(0.01)  # so that another one would come meanwhile
            errors.append(run.error)
            if not at_once[-1]:
                telling.release()
            if run.error is not None:
                loop.stop()
            if run.job == "publication" and run.has_changed:
                left.discard(run.topic)
            if not left:
                loop.stop()

        loop = Loop(store, RunOptions(on_job=stop_when_all_are_shown, every_seconds=0.05))
        loop.run()
        assert not any(errors)
        assert not any(at_once)
        assert all(is_shown(objects, topic) for topic in topics)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class TestGroups:
    def test_protected_group_keeps_its_records_where_it_exists(
        self, store: Store, clock: Clock
    ) -> None:
        """Topics that do not have the group are looked after as well."""
        config = {"retention.ms": HOUR_MS, **IN_FILES}
        read, unread, other = (
            store.create_topic(name, config=config) for name in ("read", "unread", "other")
        )
        for topic in (read, unread, other):
            append(topic)
            append(topic)
        read.group("slow").commit({0: 2})
        unread.group("slow").commit({0: 0})
        loop = driven(store, clock, protect_groups=["slow"])
        loop.go(2 * HOUR_MS)
        starts = {topic.name: topic.start_offsets()[0] for topic in (read, unread, other)}
        assert starts == {"read": 2, "unread": 0, "other": 4}
        assert not [run for run in loop.runs if run.error]

    def test_protected_group_does_not_expire(self, store: Store, clock: Clock) -> None:
        """Its unread records would go with the next retention."""
        config = {"retention.ms": 2 * HOUR_MS, "offsets.retention.minutes": 60, **IN_FILES}
        topic = store.create_topic("t", config=config)
        append(topic)
        topic.group("slow").commit({0: 0})
        driven(store, clock, protect_groups=["slow"]).go(5 * HOUR_MS)
        assert topic.groups() == ["slow"]
        assert topic.start_offsets() == {0: 0}

    def test_positions_that_are_committed_after_the_last_record_are_mirrored(
        self, store: Store, clock: Clock
    ) -> None:
        copies = make_store(MemoryStore(), clock)
        append(topic := store.create_topic("t"))
        loop = driven(store, clock, mirror_to=copies, mirror_groups=True)
        loop.go(MINUTE_MS)
        topic.group("billing").commit({0: 2})
        loop.go(MINUTE_MS)
        assert copies.topic("t").group("billing").positions() == {0: 2}

    def test_compaction_drops_no_record_for_its_age_before_a_protected_group(
        self, store: Store, clock: Clock
    ) -> None:
        """Retention removes files only; compaction removes records inside of files."""
        config = {"cleanup.policy": "compact,delete", "retention.ms": HOUR_MS, **IN_FILES}
        unread, other = (store.create_topic(name, config=config) for name in ("unread", "other"))
        for topic in (unread, other):
            append(topic)
        unread.group("slow").commit({0: 0})
        clock.tick(2 * HOUR_MS)
        driven(store, clock, jobs=["compaction"], protect_groups=["slow"]).go(HOUR_MS)
        assert [topic.count() for topic in (unread, other)] == [2, 0]

    def test_only_jobs_that_remove_records_ask_for_groups(
        self, objects: MemoryStore, clock: Clock
    ) -> None:
        """A publication each second must not list them."""
        counting = CountingStore(objects)
        store = make_store(counting, clock)
        topic = store.create_topic("t", config=PUBLISHED)
        topic.group("slow").commit({0: 0})
        options = {"protect_groups": ["slow"], "jobs": ["publication", "merge", "vacuum"]}
        counting.reset()
        loop = driven(store, clock, **options)
        for _ in range(10):
            append(topic)
            loop.go(2 * SECOND_MS)
        loop.go(HOUR_MS)
        assert {run.job for run in loop.runs} == {"publication", "merge", "vacuum"}
        assert not [key for verb, key in counting.by_key if verb == "list" and "_groups" in key]

    def test_group_that_nobody_uses_is_deleted(self, store: Store, clock: Clock) -> None:
        topic = store.create_topic("t", config={"offsets.retention.minutes": 60})
        append(topic)
        topic.group("old").commit({0: 1})
        loop = driven(store, clock)
        loop.go(30 * MINUTE_MS)
        topic.group("used").commit({0: 1})
        loop.go(45 * MINUTE_MS)
        assert topic.groups() == ["used"]


class TestRequests:
    """Bounds per hour of a topic that nobody writes to. The loop itself has its beats: a write and
    a list each, and its search for topics."""

    OWN = HOUR_MS // BEAT_MS * 2 + HOUR_MS // DISCOVERY_MS

    @pytest.fixture
    def counting(self, clock: Clock) -> CountingStore:
        """A store behind HTTP: where each reply tells the time, a look is one GET."""
        return CountingStore(FarStore(clock))

    def hour(self, counting: CountingStore, clock: Clock, **config: Any) -> Counter[str]:
        """What a topic costs in the second hour after an append."""
        store = make_store(counting, clock)
        append(store.create_topic("t", config=config))
        loop = driven(store, clock)
        loop.go(HOUR_MS)
        loop.runs.clear()
        counting.reset()
        loop.go(HOUR_MS)
        jobs = Counter(run.job for run in loop.runs)
        print(dict(counting.counts), dict(jobs))
        assert not [run for run in loop.runs if run.has_changed or run.error]
        assert jobs["retention"] <= 12
        assert jobs["compaction"] <= 1
        assert jobs["merge"] == jobs["publication"] == jobs["vacuum"] == 0
        return Counter(counting.counts)

    def test_quiet_topic(self, counting: CountingStore, clock: Clock) -> None:
        """It is looked at twice a minute: a GET, and two more each minute, which prove that the log
        has no gap. Each retention has a few."""
        counts = self.hour(counting, clock)
        assert counts.pop("write") == HOUR_MS // BEAT_MS
        assert counts.pop("list") == HOUR_MS // BEAT_MS
        assert counts.pop("list_folders") == HOUR_MS // DISCOVERY_MS
        assert set(counts) == {"read"}
        assert counts["read"] <= 120 + 60 * 2 + 12 * 8

    def test_quiet_published_topic(self, counting: CountingStore, clock: Clock) -> None:
        """It is looked at as often as its lag needs, twice in it. Nothing of the table is read."""
        counts = self.hour(counting, clock, **PUBLISHED)
        assert sum(counts.values()) - self.OWN <= HOUR_MS // 1_000 + 60 * 2 + 12 * 8

    def test_quiet_compacted_topic(self, counting: CountingStore, clock: Clock) -> None:
        counts = self.hour(counting, clock, **{"cleanup.policy": "compact"})
        assert sum(counts.values()) - self.OWN <= 120 + 60 * 2 + 12 * 8
