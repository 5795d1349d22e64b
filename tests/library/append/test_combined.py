"""Appends of several writers in one commit, and what becomes of offers [OFFER-1] to [OFFER-7]."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from pylogtable.append.combine_plan import OneAppend, append_in, offer_of
from pylogtable.append.combiner import _Neighbour
from pylogtable.append.waiting_offers import WaitingOffers
from pylogtable.arguments import NOT_GIVEN
from pylogtable.engine import plan_append
from pylogtable.errors import CommitConflictError, CommitUnknownError, CorruptTopicError
from pylogtable.format.config import MANIFEST_RETENTION_MS, STALE_AFTER_MS
from pylogtable.format.json_codec import decode_commit, encode
from pylogtable.format.model import COMBINED_APPENDS, Change, Txn
from pylogtable.format.offers import Offer, decode_offer, encode_offer
from pylogtable.format.paths import OFFERS_DIR, commit_path, offer_name, offer_path
from pylogtable.format.recent_commits import OFFER_WINDOW
from pylogtable.storage.base import Created, ObjectStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.builders import Clock, contents, ints, kafka, limited, make_store, rows, runtime
from tests.stores import _Wrapper

#: Everybody offers first.
CROWD = {"direct_tries": 0, "quiet_looks": 1, "looks_per_rank": 1, "passed_looks": 2}


def offers_of(topic: Topic) -> list[str]:
    return topic._log.manifest.offers.names()


def put_offer(
    topic: Topic,
    table: pa.Table,
    txn: tuple[str, int] | None = None,
    expected_last: Any = msgspec.UNSET,
    offer_id: str = "0",
) -> Offer:
    """The offer of a writer that waits, or has died since."""
    snapshot = topic._log.latest()
    staged = plan_append(topic).stage(table)
    named = None if txn is None else Txn(app_id=txn[0], version=txn[1])
    append = OneAppend(staged.files, staged.rows, named, NOT_GIVEN, staged.staged_at_ms)
    offer = offer_of(append, snapshot, offer_id)
    offer = msgspec.structs.replace(offer, expected_last=expected_last)
    topic._log.manifest.offers.put(offer)
    return offer


def append_in_a_crowd(topic: Topic, table: pa.Table, **how: Any) -> Any:
    """An append by a writer that offers first, and takes others along when it commits."""
    return limited(topic, **CROWD).append(table, **how)


def test_an_offer_is_taken_along_and_comes_first(store: Store) -> None:
    topic = store.create_topic("t", partitions=1)
    offer = put_offer(topic, kafka("ab"))
    result = append_in_a_crowd(topic, kafka("c"))
    assert (result.version, result.offsets, result.records) == (1, {0: (2, 3)}, 1)
    assert rows(topic.read(), "key", "offset") == [(b"a", 0), (b"b", 1), (b"c", 2)]
    [first, second] = topic.history(1).to_pylist()[0]["appends"]
    assert first["offer"] == offer.name
    assert first["offsets"] == [{"partition": 0, "start": 0, "end": 2}]
    assert (second["records"], second["offsets"]) == (1, [{"partition": 0, "start": 2, "end": 3}])
    assert topic.find_commit(offer.name) == 1
    assert offers_of(topic) == []
    assert topic.verify(data=True)


def test_an_offer_lands_once_however_often_it_is_listed(store: Store) -> None:
    topic = store.create_topic("t", partitions=1)
    offer = put_offer(topic, kafka("a"))
    append_in_a_crowd(topic, kafka("b"))
    topic._log.manifest.offers.put(offer)
    append_in_a_crowd(topic, kafka("c"))
    append_in_a_crowd(store.topic("t"), kafka("d"))
    assert rows(topic.read(), "key") == [b"a", b"b", b"c", b"d"]


def test_many_threads_with_handles_of_their_own_lose_and_double_nothing() -> None:
    store = make_store(MemoryStore(), clock=None)
    store.create_topic("t", partitions=3)
    told: dict[bytes, Any] = {}

    def work(number: int) -> None:
        topic = limited(store.topic("t"), **CROWD)
        for turn in range(5):
            key = f"{number}-{turn}".encode()
            told[key] = topic.append(kafka([key] * 3), txn=(f"app{number}", turn))

    run_all([lambda number=number: work(number) for number in range(6)])  # type: ignore[misc]
    topic = store.topic("t")
    found: dict[bytes, list[tuple[int, int]]] = {}
    for key, partition, offset in rows(topic.read(), "key", "partition", "offset"):
        found.setdefault(key, []).append((partition, offset))
    assert {key: len(places) for key, places in found.items()} == dict.fromkeys(told, 3)
    for key, result in told.items():
        assert {(p, o) for p, (a, b) in result.offsets.items() for o in range(a, b)} == set(
            found[key]
        )
        number, turn = key.decode().split("-")
        again = topic.append(kafka([key] * 3), txn=(f"app{number}", int(turn)))
        assert (again.repeated, again.offsets, again.version) == (
            True,
            result.offsets,
            result.version,
        )
    for number in range(6):
        versions = [told[f"{number}-{turn}".encode()].version for turn in range(5)]
        assert versions == sorted(set(versions))  # a writer's appends keep their order
    assert topic.verify(data=True)


class _SlowCommits(_Wrapper):
    """Holds the second commit until others have queued up behind it."""

    def __init__(self, inner: ObjectStore, until: Callable[[], None], prefix: str = "") -> None:
        super().__init__(inner, prefix)
        self._until = until

    def below(self, prefix: str) -> ObjectStore:
        return _SlowCommits(self._inner.below(prefix), self._until, self._prefix + prefix)

    def create(self, key: str, data: bytes) -> Created:
        if key == commit_path(1):
            self._until()
        return super().create(key, data)


def test_threads_that_share_a_handle_are_taken_along_from_memory() -> None:
    topic: Topic
    queued = threading.Event()

    def until_all_wait() -> None:
        queued.set()
        while len(topic._appender.committer._combiner._neighbours) < 5:
            threading.Event().wait(0.001)

    store = make_store(_SlowCommits(MemoryStore(), until_all_wait))
    topic = store.create_topic("t", partitions=1)
    results: dict[int, Any] = {}

    def work(number: int) -> None:
        results[number] = topic.append(kafka([str(number)] * (number + 1)))

    first = threading.Thread(target=work, args=(0,))
    first.start()
    queued.wait()
    run_all([lambda number=number: work(number) for number in range(1, 6)])  # type: ignore[misc]
    first.join()
    assert topic.version == 2  # one commit for the first, and one for all that waited
    placed = rows(topic.read(), "key", "offset")
    for number, result in results.items():
        [(start, end)] = result.offsets.values()
        assert [o for key, o in placed if key == str(number).encode()] == list(range(start, end))
        assert end - start == number + 1
    assert offers_of(topic) == []
    assert topic.verify(data=True)


def run_all(work: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


class TestOffersThatAreLeftAlone:
    @pytest.mark.parametrize(
        "damage",
        [
            lambda offer, data: b"{}",
            lambda offer, data: data[:-4] + bytes([data[-4] ^ 1]) + data[-3:],
            lambda offer, data: encode_offer(replace_offer(offer, topic_id="another")),
            lambda offer, data: encode_offer(replace_offer(offer, id="000")),
            lambda offer, data: encode_offer(replace_offer(offer, staged_at_ms=0)),
            lambda offer, data: encode_offer(replace_offer(offer, rows="AAAA")),
            lambda offer, data: encode_offer(replace_offer(offer, add=offer.add * 2)),
            lambda offer, data: encode_offer(
                replace_offer(offer, add=(msgspec.structs.replace(offer.add[0], partition=7),))
            ),
            lambda offer, data: encode_offer(
                replace_offer(
                    offer, add=(msgspec.structs.replace(offer.add[0], max_timestamp_us=1),)
                )
            ),
        ],
    )
    def test_a_damaged_or_foreign_offer_stops_nobody(
        self, store: Store, damage: Callable[[Offer, bytes], bytes]
    ) -> None:
        topic = store.create_topic("t", partitions=1)
        bad = put_offer(topic, kafka("x"), offer_id="0")
        good = put_offer(topic, kafka("b"), offer_id="00")
        topic._store.write(offer_path(bad.name), damage(bad, encode_offer(bad)))
        append_in_a_crowd(topic, kafka("c"))
        assert rows(topic.read(), "key") == [b"b", b"c"]
        assert topic.find_commit(good.name) == 1
        assert topic.verify(data=True)

    def test_an_offer_is_void_after_the_topic_was_altered(self, store: Store) -> None:
        topic = store.create_topic("t", partitions=1)
        offer = put_offer(topic, kafka("x"))
        topic.alter(config={"retention.ms": 1})
        append_in_a_crowd(topic, kafka("a"))
        assert rows(topic.read(), "key") == [b"a"]
        assert topic.find_commit(offer.name) is None

    def test_an_offer_is_void_when_its_txn_was_applied_by_another_process(
        self, store: Store
    ) -> None:
        topic = store.create_topic("t", partitions=1)
        put_offer(topic, kafka("x"), txn=("app", 1))
        assert not topic.append(kafka("x"), txn=("app", 1)).repeated
        append_in_a_crowd(topic, kafka("a"))
        assert rows(topic.read(), "key") == [b"x", b"a"]

    def test_an_offer_is_void_after_its_window(self, store: Store) -> None:
        topic = store.create_topic("t", partitions=1)
        offer = put_offer(topic, kafka("x"))
        with pytest.raises(CommitUnknownError):
            topic.find_commit(offer.name)
        topic._log.manifest.offers.remove([offer.name])
        for _ in range(OFFER_WINDOW):
            topic.append(kafka("a"))
        assert topic.find_commit(offer.name) is None
        topic._log.manifest.offers.put(offer)
        append_in_a_crowd(store.topic("t"), kafka("b"))
        assert b"x" not in rows(topic.read(), "key")

    def test_vacuum_removes_old_offers(self, store: Store, clock: Clock) -> None:
        topic = store.create_topic("t", partitions=1)
        put_offer(topic, kafka("x"))
        assert topic.vacuum(dry_run=True).files == ()
        clock.tick(MANIFEST_RETENTION_MS + 1)
        assert any(OFFERS_DIR in key for key in topic.vacuum(dry_run=False).files)
        assert offers_of(topic) == []


def replace_offer(offer: Offer, **fields: Any) -> Offer:
    return msgspec.structs.replace(offer, **fields)


def test_a_waiting_append_is_shaped_again_if_the_topic_is_altered(store: Store) -> None:
    topic = store.create_topic("t", partitions=1, schema={"n": pa.int64()})
    other = limited(store.topic("t"), **CROWD)
    other.end_offsets()
    topic.alter(add_columns={"m": pa.int64()})
    assert other.append(pa.table({"n": ints(1)})).records == 1
    assert rows(topic.read(), "n", "m") == [(1, None)]


def test_a_fenced_append_is_refused_although_it_was_offered(store: Store) -> None:
    topic = store.create_topic("t", partitions=1)
    topic.append(kafka("a"), txn=("app", 1))
    with pytest.raises(CommitConflictError, match="expected_last is 0"):
        append_in_a_crowd(topic, kafka("b"), txn=("app", 2), expected_last=0)
    assert append_in_a_crowd(topic, kafka("b"), txn=("app", 2), expected_last=1).records == 1
    assert topic.txn("app").offsets == {0: (1, 2)}  # type: ignore[union-attr]


def test_a_note_lands_with_the_offer(store: Store) -> None:
    topic = store.create_topic("t", partitions=1)
    append_in_a_crowd(topic, kafka("a"), txn=("app", 1), note={"read": [7]})
    found = store.topic("t").txn("app")
    assert found is not None
    assert (found.note, found.offsets, found.records) == ({"read": [7]}, {0: (0, 1)}, 1)


def test_a_producer_beside_offers_knows_where_its_records_are(store: Store) -> None:
    topic = store.create_topic("t", partitions=1)
    put_offer(topic, kafka("ab"))
    with limited(topic, **CROWD).producer(app_id="p") as producer:
        sent = producer.send(key=b"c", value=b"v")
    assert sent.result().offset == 2


def test_files_and_rows_of_several_writers_keep_their_order(store: Store) -> None:
    topic = store.create_topic("t", partitions=1)
    staged = plan_append(limited(topic)).stage(kafka("ab"))
    assert staged.rows is not None
    put_offer(topic, kafka("ab"), offer_id="0")
    topic.alter(config={"inline.max.bytes": 0})
    put_offer(topic, kafka("cd"), offer_id="00")
    topic.alter(config={"inline.max.bytes": 16384})
    put_offer(topic, kafka("ef"), offer_id="000")
    append_in_a_crowd(topic, kafka("g"))
    # The first two were made before the topic was altered.
    assert rows(topic.read(), "key", "offset") == [(b"e", 0), (b"f", 1), (b"g", 2)]
    assert topic.verify(data=True)


def test_a_topic_without_the_feature_gets_it_when_it_is_set(store: Store) -> None:
    topic = store.create_topic("t", partitions=1, config={"combined.appends": False})
    assert COMBINED_APPENDS not in topic.at().snapshot.protocol.writer_features
    append_in_a_crowd(topic, kafka("a"))
    assert topic.history(1).to_pylist()[0]["appends"] == []
    topic.alter(config={"combined.appends": True})
    assert COMBINED_APPENDS in topic.at().snapshot.protocol.writer_features
    append_in_a_crowd(topic, kafka("b"))
    assert len(topic.history(1).to_pylist()[0]["appends"]) == 1


def test_given_offsets_are_never_offered(store: Store) -> None:
    topic = store.create_topic("t", partitions=1)
    put_offer(topic, kafka("x"))
    table = kafka("a", partition=ints(0), offset=pa.array([5], pa.int64()))
    append_in_a_crowd(topic, table, keep_offsets=True)
    assert rows(topic.read(), "key", "offset") == [(b"a", 5)]


def test_verify_finds_an_offer_that_landed_twice(store: Store) -> None:
    topic = store.create_topic("t", partitions=1)
    append_in_a_crowd(topic, kafka("a"))
    append_in_a_crowd(topic, kafka("b"))
    first, second = (decode_commit(topic._store.read(commit_path(v)) or b"", v) for v in (1, 2))
    twin = msgspec.structs.replace(second.appends[0], offer=first.appends[0].offer)
    topic._store.write(commit_path(2), encode(msgspec.structs.replace(second, appends=(twin,))))
    problems = store.topic("t").verify().problems
    assert [problem.rule for problem in problems] == ["OFFER-3"]


def test_an_offer_decodes_as_it_was_written(store: Store) -> None:
    topic = store.create_topic("t", partitions=2)
    offer = put_offer(topic, kafka("abc"), txn=("app", 3), expected_last=None)
    data = contents(topic._store)[offer_path(offer.name)]
    assert decode_offer(data, offer.name) == offer
    assert append_in(offer, topic.at().snapshot).expected_last is None
    with pytest.raises(CorruptTopicError, match="OFFER-2"):
        decode_offer(data, offer.name + "b")


def test_a_landing_that_was_forgotten_is_looked_for_in_the_commits(store: Store) -> None:
    """A state remembers the offers of the last 256 versions. An older one is not void for that."""
    topic = store.create_topic("t", partitions=1)
    offer = put_offer(topic, kafka("x"))
    append_in_a_crowd(topic, kafka("a"))
    for _ in range(OFFER_WINDOW):
        append_in_a_crowd(topic, kafka("b"))
    assert topic.find_commit(offer.name) == 1
    assert store.topic("t").find_commit(offer.name) == 1


def test_two_offers_of_one_file_and_a_large_one_keep_nobody_behind_them(store: Store) -> None:
    topic = store.create_topic("t", partitions=1, config={"inline.max.bytes": 0})
    twin = put_offer(topic, kafka("x"), offer_id="0")
    topic._log.manifest.offers.put(replace_offer(twin, id="00"))
    large = replace_offer(twin, id="000", add=tuple(twin.add) * 5_000)
    topic._log.manifest.offers.put(large)
    put_offer(topic, kafka("b"), offer_id="0000")
    append_in_a_crowd(topic, kafka("c"))
    assert rows(topic.read(), "key") == [b"x", b"b", b"c"]
    assert topic.verify(data=True)


def test_an_offer_whose_commits_a_vacuum_removed_is_not_called_void(
    store: Store, clock: Clock
) -> None:
    topic = store.create_topic("t", partitions=1, config={"inline.max.bytes": 0})
    offer = put_offer(topic, kafka("x"))
    append_in_a_crowd(topic, kafka("a"))
    for _ in range(OFFER_WINDOW + 64):
        topic.append(kafka("b"))
    clock.tick(2 * MANIFEST_RETENTION_MS)
    topic.append(kafka("c"))
    topic.vacuum(dry_run=False)
    with pytest.raises(CommitUnknownError):
        store.topic("t").find_commit(offer.name)


def test_a_distributed_append_waits_in_line_and_takes_others_along(store: Store) -> None:
    """As the driver of a Spark job commits what its tasks have staged."""
    topic = store.create_topic("t", partitions=1, config={"inline.max.bytes": 0})
    put_offer(topic, kafka("x"))
    plan = plan_append(limited(topic, **CROWD))
    staged = [plan.stage(kafka([key]), task) for task, key in enumerate("ab")]
    result = plan.commit(staged, txn=("job", 1))
    assert (result.offsets, result.records, result.segments) == ({0: (1, 3)}, 2, 2)
    assert rows(topic.read(), "key") == [b"x", b"a", b"b"]
    again = plan.commit(staged, txn=("job", 1), keep_files=True)
    assert (again.repeated, again.offsets) == (True, {0: (1, 3)})
    assert topic.verify(data=True)


def test_a_writer_that_wants_to_be_alone_makes_no_offer(store: Store) -> None:
    topic = store.create_topic("t", partitions=1)
    put_offer(topic, kafka("x"))
    plan = plan_append(limited(topic, **CROWD))
    plan.commit([plan.stage(kafka("a"))], expected_ends={0: 0})
    assert topic.history(1).to_pylist()[0]["appends"] == []
    with pytest.raises(CommitConflictError, match="another writer was here"):
        plan.commit([plan.stage(kafka("b"))], expected_ends={0: 0})


def test_a_writer_that_never_loses_carries_those_who_wait() -> None:
    """It looks for offers beside its puts, at least once a second. So nobody starves."""
    now = itertools.count(0.0, 0.02)
    clocked = replace(runtime(), monotonic=lambda: next(now))
    store = Store(MemoryStore(), clocked)
    topic = store.create_topic("t", partitions=1)
    for _ in range(30):  # it has found none for a while, and looks seldom
        topic.append(kafka("a"))
    offer = put_offer(store.topic("t"), kafka("x"))
    seen = topic.append(kafka("b")).version
    while topic._log.known.recent_commits.find(offer.name, 0) is None:
        assert topic.append(kafka("b")).version < seen + 20


def test_who_waits_with_an_offer_does_not_commit_for_threads_that_wait_for_their_turn(
    store: Store,
) -> None:
    """Otherwise such a thread could get a turn while that commit is under way, and append again."""
    topic = limited(store.create_topic("t", partitions=1), **CROWD)
    combiner = topic._appender.committer._combiner
    snapshot = topic._log.latest()
    staged = plan_append(topic).stage(kafka("x"))
    append = OneAppend(staged.files, staged.rows, None, NOT_GIVEN, staged.staged_at_ms, "")
    named = replace(append, offer=offer_name(snapshot.version, "0"))
    waiting = _Neighbour(named, lambda state: Change(operation="append"))
    combiner._neighbours.append(waiting)
    topic.append(kafka("a"))
    assert waiting.outcome is None
    assert rows(topic.read(), "key") == [b"a"]


def test_an_offer_that_was_read_long_ago_is_too_old(store: Store, clock: Clock) -> None:
    topic = store.create_topic("t", partitions=1)
    put_offer(topic, kafka("x"))
    others, state = WaitingOffers(topic._log), topic._log.latest()
    own = OneAppend((), None, None, NOT_GIVEN, 0)
    others.rank("", state)
    others.fetch(own, state)
    assert len(others.takeable(own, state)) == 1
    clock.tick(STALE_AFTER_MS + 1)
    assert others.takeable(own, state) == []
