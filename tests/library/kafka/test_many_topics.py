"""Imports and exports of many topics in one process, on librdkafka's mock of a cluster."""

from __future__ import annotations

import itertools
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any

import pytest

from pylogtable import InvalidRequestError, StorageError, TopicNotFoundError
from pylogtable.errors import LogTableError
from pylogtable.kafka import (
    ImportProgress,
    ImportReport,
    export_topic,
    export_topics,
    import_many,
    import_topic,
    import_topics,
)
from pylogtable.kafka.side_by_side import AT_ONCE, Share, SideBySide
from pylogtable.kafka.topics_plan import Choice
from pylogtable.runtime import Runtime
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import contents, ints, kafka, limited, make_store, rows
from tests.kafka.mock import PARTITIONS, MockCluster, mock_cluster

_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with mock_cluster() as started:
        yield started


@pytest.fixture
def prefix() -> str:
    """The beginning of the names of a test's topics."""
    return f"many{next(_numbers)}."


def topics(cluster: MockCluster, prefix: str, *names: str) -> list[str]:
    """Topics with one record each, whose value is the name."""
    for name in names:
        cluster.produce(prefix + name, 0, [name.encode()])
    return [prefix + name for name in names]


def imported(store: Store, cluster: MockCluster, **how: Any) -> Any:
    how = {"copy_settings": False, **how}
    return import_topics(store, bootstrap_servers=cluster.servers, **how)


class TestChoice:
    NAMES = ("orders", "orders.eu", "__consumer_offsets", "orders-dead-letters", "eu")

    def test_pattern_has_to_match_the_whole_name_as_in_java(self) -> None:
        assert Choice.of(None, r"orders", False).among(self.NAMES) == ["orders"]
        assert Choice.of(None, r"orders\..*", False).among(self.NAMES) == ["orders.eu"]
        assert Choice.of(None, r"eu|orders", False).among(self.NAMES) == ["eu", "orders"]

    def test_internal_topics_have_to_be_named(self) -> None:
        everything = Choice.of(None, ".*", False).among(self.NAMES)
        assert everything == ["eu", "orders", "orders-dead-letters", "orders.eu"]
        assert Choice.of(["__consumer_offsets"], None, False).among(()) == ["__consumer_offsets"]

    def test_all_topics_are_without_dead_letters(self) -> None:
        names = [*self.NAMES, "orders-redriven"]
        assert Choice.of(None, None, True).among(names) == ["eu", "orders", "orders.eu"]
        assert Choice.of(None, ".*-redriven", False).among(names) == ["orders-redriven"]

    def test_a_topic_that_is_named_twice_is_one(self) -> None:
        assert Choice.of(["b", "a", "b"], None, False).among(()) == ["b", "a"]

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ((None, None, False), "exactly one of"),
            ((["a"], None, True), "exactly one of"),
            ((["a"], "b", False), "exactly one of"),
            ((None, "*", False), r"`pattern` is no regular expression: '\*'"),
            ((None, "", False), "`pattern` must not be empty"),
            (([], None, False), "`topics` must not be empty"),
            (([""], None, False), "must not be empty"),
            (("ab", None, False), "topics"),
        ],
    )
    def test_nonsense_is_refused(self, given: Any, words: str) -> None:
        with pytest.raises(InvalidRequestError, match=words):
            Choice.of(*given)


class TestImports:
    def test_each_topic_comes_with_its_records(
        self, store: Store, cluster: MockCluster, prefix: str
    ) -> None:
        names = topics(cluster, prefix, "a", "b", "c", "d", "e", "f")
        told: dict[str, Any] = {}
        progress: dict[str, list[ImportProgress]] = {}
        done = imported(
            store,
            cluster,
            topics=names,
            on_end=told.__setitem__,
            on_progress=lambda topic, at: progress.setdefault(topic, []).append(at),
        )
        assert done
        assert done.records == 6
        assert list(done.reports) != []
        assert done.reports == told
        assert {name: report.offsets for name, report in done.reports.items()} == {
            name: {0: (0, 1)} for name in names
        }
        assert {name: at[-1].records for name, at in progress.items()} == dict.fromkeys(names, 1)
        for name in names:
            assert rows(store.topic(name).read(), "value") == [name[len(prefix) :].encode()]
            assert store.topic(name).describe().copy_of is not None
        assert imported(store, cluster, topics=names).records == 0

    def test_pattern_and_all_topics(self, store: Store, cluster: MockCluster, prefix: str) -> None:
        a, b, _ = topics(cluster, prefix, "a.eu", "b.eu", "c-dead-letters")
        cluster.produce("__internal", 0, [b"x"])
        assert sorted(imported(store, cluster, pattern=rf"{prefix}.*\.eu").reports) == [a, b]
        found = set(imported(store, cluster, all_topics=True).reports)
        assert {a, b} <= found
        assert not found & {f"{prefix}c-dead-letters", "__internal"}

    def test_topic_that_fails_does_not_stop_the_others(
        self, store: Store, cluster: MockCluster, prefix: str
    ) -> None:
        a, b, c = topics(cluster, prefix, "a", "b", "c")
        store.create_topic(b).append(kafka("x"))
        told: list[tuple[str, Any]] = []
        done = imported(
            store, cluster, topics=[a, b, f"{prefix}nope", c], on_end=lambda *one: told.append(one)
        )
        assert not done
        assert sorted(done.reports) == [a, c]
        assert {name: type(error) for name, error in done.errors.items()} == {
            b: InvalidRequestError,
            f"{prefix}nope": TopicNotFoundError,
        }
        assert f"has no topic '{prefix}nope'" in str(done.errors[f"{prefix}nope"])
        assert sorted(name for name, _ in told) == sorted([a, b, c, f"{prefix}nope"])

    def test_bug_in_one_topic_is_the_error_of_that_topic(
        self, store: Store, cluster: MockCluster, prefix: str
    ) -> None:
        a, b = topics(cluster, prefix, "a", "b")

        def tell(topic: str, at: ImportProgress) -> None:
            if topic == a:
                raise ZeroDivisionError("oh")

        done = imported(store, cluster, topics=[a, b], on_progress=tell)
        assert str(done.errors[a]) == "ZeroDivisionError: oh"
        assert sorted(done.reports) == [b]

    def test_options_count_for_each_topic(
        self, store: Store, cluster: MockCluster, prefix: str
    ) -> None:
        names = topics(cluster, prefix, "a", "b")
        how: dict[str, Any] = {"copy_settings": False, "config": {"retention.ms": -1}}
        assert import_topics(store, names, bootstrap_servers=cluster.servers, **how).records == 2
        assert {store.topic(n).describe().config["retention.ms"] for n in names} == {"-1"}

    @pytest.mark.parametrize("name", ["name", "topic", "color"])
    def test_options_of_one_topic_are_refused(self, store: Store, name: str) -> None:
        with pytest.raises(TypeError, match=f"'{name}' is no option for many topics"):
            import_topics(store, topics=["a"], bootstrap_servers="x:1", **{name: "b"})

    def test_nothing_that_matches_is_an_error_that_says_what_there_is(
        self, store: Store, cluster: MockCluster, prefix: str
    ) -> None:
        topics(cluster, prefix, "a")
        with pytest.raises(
            InvalidRequestError, match=r"matches 'nope\\\.\.\*'.*Its topics: .*many"
        ):
            imported(store, cluster, pattern=r"nope\..*")
        assert store.topics() == []

    def test_cluster_that_cannot_be_reached_is_named(self, store: Store) -> None:
        store = limited(store, kafka_stop_seconds=0.1)
        stopped = itertools.count()
        report = import_topics(
            store, all_topics=True, bootstrap_servers="127.0.0.1:1", stop=lambda: next(stopped) > 0
        )
        assert (report.records, report.reports) == (0, {})

    def test_stop_ends_all_after_their_running_commits(
        self, store: Store, cluster: MockCluster, prefix: str
    ) -> None:
        names = topics(cluster, prefix, "a", "b", "c")
        with following(store, cluster, topics=names) as running:
            running.until(lambda: counts(store) == dict.fromkeys(names, 1))
        reports = running.report.reports
        assert {name: report.records for name, report in reports.items()} == dict.fromkeys(names, 1)


class Following:
    """Work on many topics that goes on in a thread until the block is left."""

    def __init__(self, work: Callable[..., Any], store: Store, servers: str, **how: Any) -> None:
        self._enough = threading.Event()
        given = {"bootstrap_servers": servers, "follow": True, "stop": self._enough.is_set, **how}
        self._pool = ThreadPoolExecutor(1)
        self._running = self._pool.submit(work, store, **given)

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._pool.shutdown()

    def until(self, done: Callable[[], object]) -> None:
        """Wait until something has happened, as long as the work goes on."""
        for _ in range(3000):
            if done():
                return
            assert not self._running.done(), self._running.result()
            time.sleep(0.02)
        raise AssertionError("it has not happened")

    @property
    def report(self) -> Any:
        """What was done, after the block."""
        return self._running.result()


def counts(store: Store) -> dict[str, int]:
    return {name: store.topic(name).count() for name in store.topics()}


@pytest.fixture
def quick(store: Store) -> Store:
    """Looks for new topics, and tries again, very often."""
    return limited(store, kafka_look_seconds=0.05)  # type: ignore[arg-type]


def following(store: Store, cluster: MockCluster, **how: Any) -> Following:
    how = {"copy_settings": False, "linger_ms": 50, **how}
    return Following(import_topics, store, cluster.servers, **how)


class TestFollowing:
    def test_new_topic_that_matches_is_found(
        self, quick: Store, cluster: MockCluster, prefix: str
    ) -> None:
        [a] = topics(cluster, prefix, "a.eu")
        with following(quick, cluster, pattern=rf"{prefix}.*\.eu") as running:
            running.until(lambda: counts(quick) == {a: 1})
            [b, _] = topics(cluster, prefix, "b.eu", "c.us")
            running.until(lambda: counts(quick) == {a: 1, b: 1})
        assert sorted(running.report.reports) == [a, b]

    def test_pattern_that_matches_nothing_yet_is_waited_for(
        self, quick: Store, cluster: MockCluster, prefix: str
    ) -> None:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with following(quick, cluster, pattern=f"{prefix}.*") as running:
                running.until(lambda: warned)
                [a] = topics(cluster, prefix, "a")
                running.until(lambda: counts(quick) == {a: 1})
        assert running.report.records == 1
        assert re.search("matches .* It is looked for again every", str(warned[0].message))

    def test_topic_that_fails_is_tried_again_and_its_error_told_once(
        self, quick: Store, cluster: MockCluster, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        [a, late] = topics(cluster, prefix, "a", "late")
        quick.create_topic(late).append(kafka("x"))
        tries: list[str] = []
        right = import_topic

        @wraps(right)
        def count(store: Store, topic: str, **how: Any) -> ImportReport:
            tries.append(topic)
            return right(store, topic, **how)

        monkeypatch.setattr(import_many, "import_topic", count)
        told: list[tuple[str, str]] = []

        def end(topic: str, outcome: ImportReport | LogTableError) -> None:
            told.append((topic, type(outcome).__name__))

        with following(quick, cluster, topics=[a, late], on_end=end) as running:
            running.until(lambda: tries.count(late) > 2)
            assert told == [(late, "InvalidRequestError")]
            cluster.produce(a, 0, [b"more"])
            quick.delete_topic(late)
            running.until(lambda: counts(quick) == {a: 2, late: 1})
        assert running.report
        assert tries.count(a) == 1
        assert sorted(told[1:]) == [(a, "ImportReport"), (late, "ImportReport")]

    def test_cluster_that_lists_no_topics_for_a_while_stops_nobody(
        self, quick: Store, cluster: MockCluster, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        [a] = topics(cluster, prefix, "a")
        right = import_many.topic_names
        looks: list[int] = []

        def look(*args: Any, **options: Any) -> list[str]:
            looks.append(0)
            if len(looks) == 2:
                raise StorageError("away")
            return right(*args, **options)

        monkeypatch.setattr(import_many, "topic_names", look)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with following(quick, cluster, pattern=f"{prefix}.*") as running:
                running.until(lambda: len(looks) > 2)
                [b] = topics(cluster, prefix, "b")
                running.until(lambda: counts(quick) == {a: 1, b: 1})
        said = "new topics are not looked for, and later again: away"
        assert [str(one.message) for one in warned] == [said]


class TestMemory:
    """One budget for all topics."""

    @pytest.fixture
    def shares(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, Any]]:
        """What each import was given."""
        found: list[tuple[str, int, Any]] = []

        @wraps(import_topic)
        def take(store: Store, topic: str, **how: Any) -> ImportReport:
            found.append((topic, how["batch_bytes"], how["consumer_settings"]))
            return import_topic(store, topic, **how)

        monkeypatch.setattr(import_many, "import_topic", take)
        return found

    def test_topics_of_a_bounded_import_share_it(
        self, store: Store, cluster: MockCluster, prefix: str, shares: list[tuple[str, int, Any]]
    ) -> None:
        names = topics(cluster, prefix, *map(str, range(6)))
        given = {"queued.max.messages.kbytes": 4096}
        imported(store, cluster, topics=names, batch_bytes=1 << 20, consumer_settings=given)
        assert len(shares) == 6
        for _, size, settings in shares:
            assert size == (1 << 20) // AT_ONCE
            assert settings["queued.max.messages.kbytes"] == 4096 // AT_ONCE
        assert given == {"queued.max.messages.kbytes": 4096}

    def test_one_topic_has_all_of_it(
        self, store: Store, cluster: MockCluster, prefix: str, shares: list[tuple[str, int, Any]]
    ) -> None:
        imported(store, cluster, topics=topics(cluster, prefix, "a"))
        [(_, size, settings)] = shares
        assert (size, settings["queued.max.messages.kbytes"]) == (256 << 20, 256 << 10)
        assert settings["fetch.max.bytes"] == 50 << 20

    def test_shares_get_smaller_when_topics_come_and_nothing_is_lost(
        self, quick: Store, cluster: MockCluster, prefix: str, shares: list[tuple[str, int, Any]]
    ) -> None:
        """The first topic begins with all of it, and again with less when two more are there."""
        [a] = topics(cluster, prefix, "a")
        progress: list[int] = []

        def tell(topic: str, at: ImportProgress) -> None:
            if topic == a:
                progress.append(at.records)

        how = {"pattern": f"{prefix}.*", "batch_bytes": 1 << 20, "on_progress": tell}
        with following(quick, cluster, **how) as running:
            running.until(lambda: counts(quick) == {a: 1})
            [b, c] = topics(cluster, prefix, "b", "c")
            running.until(lambda: counts(quick) == {a: 1, b: 1, c: 1})
            running.until(lambda: [topic for topic, _, _ in shares].count(a) > 1)
            cluster.produce(a, 0, [b"more"])
            running.until(lambda: counts(quick) == {a: 2, b: 1, c: 1})
        done = running.report
        assert {n: report.records for n, report in done.reports.items()} == {a: 2, b: 1, c: 1}
        assert done.reports[a].offsets == {0: (0, 2)}
        sizes = [size for topic, size, _ in shares if topic == a]
        assert (sizes[0], sizes[-1]) == (1 << 20, (1 << 20) // 4)
        assert progress == sorted(progress)
        assert progress[-1] == 2

    def test_threads_that_hold_memory_are_for_all_topics(
        self, store: Store, cluster: MockCluster, prefix: str
    ) -> None:
        names = topics(cluster, prefix, *map(str, range(8)))
        before = {thread.ident for thread in threading.enumerate()}
        with following(store, cluster, topics=names) as running:
            running.until(lambda: counts(store) == dict.fromkeys(names, 1))
            new = [one for one in threading.enumerate() if one.ident not in before]
        workers = [one for one in new if not one.name.startswith("import ")]
        assert len(new) - len(workers) == len(names)
        assert len(workers) <= 3 * AT_ONCE + 1

    def test_few_topics_at_a_time_unless_they_are_followed(self) -> None:
        at_work: set[str] = set()
        most = 0
        lock = threading.Lock()
        everybody = threading.Event()

        def work(topic: str, share: Share) -> int:
            nonlocal most
            with lock:
                at_work.add(topic)
                most = max(most, len(at_work))
            everybody.wait(5 if share.parts > AT_ONCE else 0.01)
            with lock:
                at_work.discard(topic)
            return share.parts

        names = [f"t{n}" for n in range(11)]
        bounded = SideBySide(work, Runtime(), follows=False, rest_seconds=30.0, name="test")
        seen: list[str] = []
        while len(seen) < len(names):
            bounded.begin(names)
            seen += [one.topic for one in bounded.ended(0.1)]
        bounded.begin(names)
        assert bounded.running == 0
        assert sorted(seen) == sorted(names)
        assert most <= AT_ONCE
        following = SideBySide(work, Runtime(), follows=True, rest_seconds=30.0, name="test")
        following.begin(names)
        assert following.running == len(names)
        everybody.set()
        assert {one.report for one in following.wait()} == {16}

    def test_work_that_has_ended_rests_by_the_clock(self) -> None:
        now = [0.0]
        done: list[str] = []

        def work(topic: str, share: Share) -> None:
            done.append(topic)

        runtime = Runtime(monotonic=lambda: now[0])
        side = SideBySide(work, runtime, follows=True, rest_seconds=30.0, name="test")
        for now[0], times in ((0.0, 1), (29.0, 1), (30.0, 2), (59.0, 2), (60.5, 3)):
            side.begin(["a"])
            side.wait()
            assert len(done) == times


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"linger_ms": -1}, "`linger_ms` must be"),
        ({"value_format": "avor"}, "`value_format` must be one of"),
        ({"value_format": "avro", "value_schema": "no.avsc"}, r"schema no\.avsc cannot be read"),
        ({"value_format": "avro"}, "avro needs its schemas"),
        ({"value_format": "json", "on_error": "x"}, "`on_error` must be"),
        ({"from_timestamp": "soon"}, "soon"),
        ({"groups": "billing"}, "groups"),
        ({"config": {"retention.msec": 1}}, "unknown topic config 'retention"),
    ],
)
def test_options_that_are_wrong_for_all_topics_raise_before_any_begins(
    store: Store, wrong: dict[str, Any], words: str
) -> None:
    """Nobody is asked: there is no Kafka there."""
    ended: list[str] = []
    with pytest.raises(InvalidRequestError, match=words):
        import_topics(
            store,
            topics=["a", "b"],
            bootstrap_servers="127.0.0.1:1",
            on_end=lambda topic, report: ended.append(topic),
            **wrong,
        )
    assert ended == []


class TestExports:
    def test_topics_are_sent_to_topics_of_the_same_names(
        self, store: Store, cluster: MockCluster, prefix: str
    ) -> None:
        for name in ("a", "b", "c-dead-letters", "c-redriven"):
            store.create_topic(prefix + name, 2).append(kafka(name[:1]))
            cluster.producer.list_topics(prefix + name, timeout=30)
        done = export_topics(store, all_topics=True, bootstrap_servers=cluster.servers)
        assert {name: report.records for name, report in done.reports.items()} == {
            f"{prefix}a": 1,
            f"{prefix}b": 1,
        }
        again = export_topics(store, pattern=".*", bootstrap_servers=cluster.servers)
        assert again.records == 2
        assert {f"{prefix}c-dead-letters", f"{prefix}c-redriven"} <= again.reports.keys()

    def test_topic_that_fails_does_not_stop_the_others(
        self, store: Store, cluster: MockCluster, prefix: str
    ) -> None:
        store.create_topic(f"{prefix}a").append(kafka("a"))
        store.create_topic(f"{prefix}table", 1, {"n": "int"})
        cluster.producer.list_topics(f"{prefix}a", timeout=30)
        names = [f"{prefix}table", f"{prefix}nope", f"{prefix}a"]
        done = export_topics(store, topics=names, bootstrap_servers=cluster.servers)
        assert sorted(done.errors) == sorted(names[:2])
        assert done.records == 1
        with pytest.raises(InvalidRequestError, match=r"no topic in memory://.* matches 'zz'"):
            export_topics(store, pattern="zz", bootstrap_servers=cluster.servers)
        with pytest.raises(InvalidRequestError, match="`value_format` must be one of"):
            export_topics(store, topics=names, bootstrap_servers="x", value_format="avor")
        with pytest.raises(TypeError, match="'kafka_topic' is no option"):
            export_topics(store, all_topics=True, bootstrap_servers="x", kafka_topic="y")

    def test_new_topic_is_followed(
        self, objects: MemoryStore, cluster: MockCluster, prefix: str
    ) -> None:
        quick = limited(Store(objects, Runtime()), kafka_look_seconds=0.05)  # type: ignore[arg-type]
        for name in ("a", "b"):
            cluster.producer.list_topics(prefix + name, timeout=30)
        quick.create_topic(f"{prefix}a").append(kafka("a"))
        sent: dict[str, int] = {}
        how: dict[str, Any] = {"all_topics": True, "on_progress": sent.__setitem__}
        with Following(export_topics, quick, cluster.servers, **how) as running:
            running.until(lambda: sent == {f"{prefix}a": 1})
            quick.create_topic(f"{prefix}b").append(kafka("bb"))
            running.until(lambda: sent == {f"{prefix}a": 1, f"{prefix}b": 2})
        assert running.report.records == 3

    def test_it_is_said_again_and_again_that_all_topics_have_failed(
        self, objects: MemoryStore, cluster: MockCluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        quick = limited(Store(objects, Runtime()), kafka_look_seconds=0.05)  # type: ignore[arg-type]
        told: list[object] = []
        how: dict[str, Any] = {"topics": ["x", "y"], "on_end": lambda *one: told.append(one)}
        said = "nothing is done: all 2 topics of this export have failed"
        with Following(export_topics, quick, cluster.servers, **how) as running:
            running.until(lambda: caplog.text.count(said) >= 3)
        assert len(told) == 2

    def test_copy_is_not_sent_to_the_topic_that_it_is_a_copy_of(
        self, store: Store, cluster: MockCluster, prefix: str
    ) -> None:
        """The import would bring its records again, without end."""
        [a] = topics(cluster, prefix, "a")
        imported(store, cluster, topics=[a])
        before = contents(store._store)
        with pytest.raises(InvalidRequestError, match="Its records are in that topic already"):
            export_topic(store.topic(a), bootstrap_servers=cluster.servers)
        assert contents(store._store) == before
        other = cluster.new_topic()
        cluster.producer.list_topics(other, timeout=30)
        sent = export_topic(store.topic(a), bootstrap_servers=cluster.servers, kafka_topic=other)
        assert sent.records == 1

    def test_promoted_copy_is_sent_back_from_where_it_was_promoted(
        self, store: Store, cluster: MockCluster, prefix: str
    ) -> None:
        """What came from there is not sent there again; another topic of Kafka gets all."""
        [a] = topics(cluster, prefix, "a")
        imported(store, cluster, topics=[a])
        copy = store.topic(a)
        copy.promote()
        copy.append(kafka("xy"))
        ends = ", ".join(f"{n}: {int(n == 0)}" for n in range(PARTITIONS))
        with pytest.warns(UserWarning, match=f"was promoted, at the offsets {ends}$"):
            assert export_topic(copy, bootstrap_servers=cluster.servers).records == 2
        copy.append(kafka("z"))
        assert export_topic(copy, bootstrap_servers=cluster.servers).records == 1
        assert imported(store, cluster, topics=[a], copy_settings=False).errors.keys() == {a}
        again = import_topic(
            store, a, name="again", bootstrap_servers=cluster.servers, copy_settings=False
        )
        assert again.records == 4
        other = cluster.new_topic()
        cluster.producer.list_topics(other, timeout=30)
        all_of_it = export_topic(copy, bootstrap_servers=cluster.servers, kafka_topic=other)
        assert all_of_it.records == 4

    def test_copy_whose_promotion_is_no_longer_kept_is_not_sent_back_by_itself(
        self, store: Store, objects: MemoryStore, cluster: MockCluster, prefix: str
    ) -> None:
        [a] = topics(cluster, prefix, "a")
        imported(store, cluster, topics=[a])
        copy = store.topic(a)
        copy.promote()
        for _ in range(70):  # there is a root behind it
            copy.append(kafka("x", partition=ints(0)))
        objects.delete(f"{a}/_manifest/{2:020d}.json")  # as a vacuum does
        copy = make_store(objects).topic(a)
        before = contents(objects)
        how: dict[str, Any] = {"bootstrap_servers": cluster.servers, "group": "g"}
        with pytest.raises(InvalidRequestError, match=r"position of group 'g' first"):
            export_topic(copy, **how)
        assert contents(objects) == before
        copy.group("g").reset({0: 70, "*": "latest"})
        assert export_topic(copy, **how).records == 1

    def test_mirror_of_a_promoted_copy_is_not_sent_back_by_itself(
        self, store: Store, cluster: MockCluster, prefix: str
    ) -> None:
        """Its versions are not those of the copy that was promoted."""
        [a] = topics(cluster, prefix, "a")
        imported(store, cluster, topics=[a])
        store.topic(a).promote()
        store.topic(a).append(kafka("x"))
        store.topic(a).mirror(store, name="m")
        mirror = store.topic("m")
        mirror.promote()
        for _ in range(3):
            mirror.append(kafka("y"))
        with pytest.raises(InvalidRequestError, match=r"position of group 'g' first"):
            export_topic(mirror, bootstrap_servers=cluster.servers, kafka_topic=a, group="g")
