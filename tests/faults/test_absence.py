"""A handle on a topic whose commits are gone: vacuumed, removed, or removed and created again.

What such a handle is told is true: its appends land at the true end, or are refused [COMMIT-9].
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pylogtable
from pylogtable.engine import plan_append
from pylogtable.errors import (
    CommitUnknownError,
    CorruptTopicError,
    InvalidRequestError,
    TopicNotFoundError,
)
from pylogtable.format.json_codec import decode_commit
from pylogtable.format.paths import HINT_PATH, commit_path, parse_root_path
from pylogtable.limits import Limits
from pylogtable.log.manifest import Manifest
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.local import LocalStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.topic import Topic
from tests.builders import IN_FILES, Clock, contents, ints, kafka, make_store, rows
from tests.stores import CountingStore, FarStore, Fault, FaultyStore
from tests.tamper import edited

MINUTE_MS = 60_000
DAY_MS = 86_400_000
OFTEN_A_ROOT = Limits(root_interval=4, root_grace=1)

MakeStore = Callable[[Path], ObjectStore]
STORES: dict[str, MakeStore] = {
    "local": LocalStore,
    "memory": lambda _: MemoryStore(),
}


@pytest.fixture(params=STORES)
def near(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """A store in which a request costs next to nothing."""
    return STORES[request.param](tmp_path)


def remove(objects: ObjectStore, prefix: str = "t/") -> None:
    for entry in list(objects.list(prefix)):
        objects.delete(entry.key)


def append(topic: Topic, *keys: str) -> Any:
    return topic.append(kafka(list(keys) or ["k"]))


def values(topic: Topic) -> list[Any]:
    return rows(topic.read(), "key")


def vacuum_manifest(objects: ObjectStore, keep: int | None = None) -> int:
    """Remove what a vacuum would remove weeks later: all below the newest root. Returns it. `keep`
    is a commit with the last txn of an app id, which stays [VAC-1]."""
    below = objects.below("t")
    roots = [v for e in below.list("_manifest/") if (v := parse_root_path(e.key)) is not None]
    for root in sorted(roots)[:-1]:
        below.delete(f"_manifest/{root:020d}.root.json")
    for version in range(max(roots)):
        if version != keep:
            below.delete(commit_path(version))
    return max(roots)


class TestRecreatedTopic:
    @pytest.mark.parametrize("appends", [0, 3, 5], ids=["fewer commits", "as many", "more"])
    @pytest.mark.parametrize("asks", ["append", "commit", "read", "group"])
    def test_old_handle_is_refused_and_the_new_topic_is_as_before(
        self, near: ObjectStore, appends: int, asks: str
    ) -> None:
        old = make_store(near).create_topic("t")
        for _ in range(3):
            append(old, "old")
        staged = plan_append(old).stage(kafka(["old"]))
        group = old.group("g")
        remove(near)
        new = make_store(near).create_topic("t")
        for _ in range(appends):
            append(new, "new")
        with pytest.raises(TopicNotFoundError, match=r"another one was created.*open the topic"):
            {
                "append": lambda: append(old, "old"),
                "commit": lambda: plan_append(old, refresh=False).commit([staged], keep_files=True),
                "read": lambda: old.read(),
                "group": lambda: group.commit({0: 1}),
            }[asks]()
        assert values(new) == [b"new"] * appends
        for _ in range(5):
            append(new, "new")
        cold = make_store(near).topic("t")
        assert cold.end_offsets() == {0: appends + 5}
        assert values(cold) == [b"new"] * (appends + 5)
        assert cold.verify(data=True), str(cold.verify())

    @pytest.mark.parametrize("appends", [0, 3, 5], ids=["fewer commits", "as many", "more"])
    def test_topic_that_is_replaced_while_the_old_handle_commits(
        self, near: ObjectStore, appends: int
    ) -> None:
        """The last moment: just before the put."""
        begun = False

        def replace_topic(verb: str, key: str) -> Fault | None:
            nonlocal begun
            if verb == "create" and key == f"t/{commit_path(4)}" and not begun:
                begun = True
                remove(near)
                new = make_store(near).create_topic("t")
                for _ in range(appends):
                    append(new, "new")
            return None

        old = make_store(FaultyStore(near, replace_topic)).create_topic("t")
        for _ in range(3):
            append(old, "old")
        with pytest.raises(TopicNotFoundError, match="another one was created"):
            append(old, "old")
        new = make_store(near).topic("t")
        assert values(new) == [b"new"] * appends
        for _ in range(6):
            append(new, "new")
        cold = make_store(near).topic("t")
        assert values(cold) == [b"new"] * (appends + 6)
        assert cold.verify(data=True), str(cold.verify())
        stray = decode_commit(near.read(f"t/{commit_path(4)}") or b"", 4)
        is_void = stray.topic_id == old.topic_id
        assert is_void == (appends < 4)
        assert cold.version == appends + 6 + is_void

    def test_in_a_directory_removed_with_everything_in_it(self, tmp_path: Path) -> None:
        old = pylogtable.open(tmp_path).create_topic("t")
        append(old, "old")
        shutil.rmtree(tmp_path / "t")
        new = pylogtable.open(tmp_path).create_topic("t")
        append(new, "new")
        with pytest.raises(TopicNotFoundError):
            append(old, "old")
        assert values(pylogtable.open_topic(tmp_path / "t")) == [b"new"]
        assert new.verify(data=True)

    def test_producer_of_the_old_topic_is_refused(self, near: ObjectStore) -> None:
        old = make_store(near).create_topic("t")
        producer = old.producer(linger_ms=0)
        producer.send(key=b"old", value=b"v").result()
        remove(near)
        new = make_store(near).create_topic("t")
        with pytest.raises(TopicNotFoundError):
            producer.send(key=b"old", value=b"v").result()
        producer.close()  # the error was given already
        append(new, "new")
        assert values(new) == [b"new"]

    def test_on_a_far_store_a_minute_later(self) -> None:
        time = Clock()
        far = FarStore(time)
        old = make_store(far).create_topic("t")
        staged = plan_append(old).stage(kafka(["old"]))
        time.tick(MINUTE_MS)
        remove(far)
        new = make_store(far).create_topic("t")
        append(new, "new")
        with pytest.raises(TopicNotFoundError, match="another one was created"):
            plan_append(old, refresh=False).commit([staged], keep_files=True)
        with pytest.raises(TopicNotFoundError, match="another one was created"):
            old.read()
        append(new, "new")
        assert values(make_store(far).topic("t")) == [b"new", b"new"]


class TestRemovedTopic:
    @pytest.mark.parametrize("moment", ["before the append", "before the put"])
    def test_append_of_an_old_handle_is_refused(self, near: ObjectStore, moment: str) -> None:
        def decide(verb: str, key: str) -> Fault | None:
            if verb == "create" and key == f"t/{commit_path(2)}" and moment == "before the put":
                remove(near)
            return None

        old = make_store(FaultyStore(near, decide)).create_topic("t")
        append(old, "old")
        if moment == "before the append":
            remove(near)
        with pytest.raises(TopicNotFoundError, match="has been deleted"):
            append(old, "old")
        assert make_store(near).topics() == []
        new = make_store(near).create_topic("t")
        for _ in range(4):
            append(new, "new")
        assert values(make_store(near).topic("t")) == [b"new"] * 4

    def test_group_and_consumer_of_an_old_handle_are_refused(self, near: ObjectStore) -> None:
        old = make_store(near).create_topic("t")
        group, consumer = old.group("g"), old.consumer("h", "worker")
        append(old, "old")
        consumer.poll()
        remove(near)
        with pytest.raises(TopicNotFoundError):
            group.commit({0: 1})
        with pytest.raises(TopicNotFoundError):
            consumer.poll()
        assert not list(near.list())


class TestVacuumedTopic:
    @pytest.fixture
    def near(self, near: ObjectStore) -> ObjectStore:
        return near.with_limits(OFTEN_A_ROOT)

    def test_append_of_an_idle_handle_lands_at_the_true_end(self, near: ObjectStore) -> None:
        """Its clock stands still, so it does not know that weeks have passed."""
        busy = make_store(near).create_topic("t", config=IN_FILES)
        idle, reader = make_store(near).topic("t"), make_store(near).topic("t")
        for _ in range(9):
            append(busy, "busy")
        root = vacuum_manifest(near)
        assert root == 8
        assert reader.end_offsets() == {0: 9}
        assert append(idle, "idle").offsets == {0: (9, 10)}
        cold = make_store(near).topic("t")
        assert values(cold) == [b"busy"] * 9 + [b"idle"]
        assert cold.verify(data=True), str(cold.verify())

    @pytest.mark.parametrize("begins_at_root", [False, True])
    def test_base_that_stays_for_its_txn_proves_nothing(
        self, near: ObjectStore, begins_at_root: bool
    ) -> None:
        """A vacuum keeps the commit with an app's last txn, and removes those around it."""
        busy = make_store(near).create_topic("t")
        for _ in range(4 if begins_at_root else 0):
            append(busy, "busy")
        base = busy.append(kafka(["etl"]), txn=("etl", 1)).version
        idle, reader = make_store(near).topic("t"), make_store(near).topic("t")
        for _ in range(9):
            append(busy, "busy")
        assert vacuum_manifest(near, keep=base) > base + 1
        end = base + 9
        assert reader.end_offsets() == {0: end}
        assert append(idle, "idle").offsets == {0: (end, end + 1)}
        assert make_store(near).topic("t").count() == end + 1

    def test_vacuum_just_before_the_put_of_a_stale_writer(self, near: ObjectStore) -> None:
        """The put lands in a version that was removed. It does not count, and says so."""

        def vacuum_now(verb: str, key: str) -> Fault | None:
            if verb == "create" and key == f"t/{commit_path(1)}":
                for _ in range(9):
                    append(busy, "busy")
                vacuum_manifest(near)
            return None

        busy = make_store(near).create_topic("t", config=IN_FILES)
        stale = make_store(FaultyStore(near, vacuum_now)).topic("t")
        with pytest.raises(CommitUnknownError) as raised:
            append(stale, "stale")
        with pytest.raises(CommitUnknownError):
            busy.find_commit(raised.value.commit_id, raised.value.version)
        for handle in (busy, stale, make_store(near).topic("t")):
            assert values(handle) == [b"busy"] * 9
        assert append(stale, "stale").offsets == {0: (9, 10)}

    def test_stray_commit_is_not_built_upon(self, near: ObjectStore) -> None:
        busy = make_store(near).create_topic("t", config=IN_FILES)
        idle = [make_store(near).topic("t") for _ in range(3)]
        before = contents(near)
        append(idle[0], "stray")
        stray = near.read(f"t/{commit_path(1)}")
        assert stray is not None
        remove(near)
        for key, data in before.items():
            near.write(key, data or b"")
        for _ in range(9):
            append(busy, "busy")
        vacuum_manifest(near)
        assert near.create(f"t/{commit_path(1)}", stray).value == "yes"
        assert append(idle[1], "late").offsets == {0: (9, 10)}
        assert idle[2].end_offsets() == {0: 10}
        assert values(make_store(near).topic("t")) == [b"busy"] * 9 + [b"late"]

    def test_history_ends_before_a_stray_commit(self, near: ObjectStore) -> None:
        topic = make_store(near).create_topic("t", config=IN_FILES)
        for _ in range(9):
            append(topic)
        below = near.below("t")
        true = decode_commit(below.read(commit_path(7)) or b"", 7)
        vacuum_manifest(near)
        body = (near.read(f"t/{commit_path(9)}") or b"").replace(b'"version":9', b'"version":7')
        below.create(commit_path(7), edited(body, lambda _: None))
        assert rows(topic.history(), "version") == [9, 8]
        assert topic.find_commit(true.commit_id) is None

    def test_frozen_clock_while_the_store_moves_on_for_30_days(self) -> None:
        """It is refused, and nothing is lost once it is set."""
        time, frozen = Clock(), Clock()
        far = FarStore(time).with_limits(OFTEN_A_ROOT)
        busy = make_store(far, time).create_topic("t")
        idle = make_store(far, frozen).topic("t")
        for _ in range(9):
            time.tick(3 * DAY_MS)
            append(busy, "busy")
        vacuum_manifest(far)
        time.tick(3 * DAY_MS)
        with pytest.raises(InvalidRequestError, match="this machine's clock says"):
            append(idle, "idle")
        frozen.now_ms = time()
        assert append(idle, "idle").offsets == {0: (9, 10)}
        assert make_store(far, time).topic("t").count() == 10


class TestGap:
    """A commit in the middle is missing, for instance because of a lifecycle rule."""

    def test_nothing_is_put_into_a_gap_where_looking_costs_nothing(self, near: ObjectStore) -> None:
        topic = make_store(near).create_topic("t")
        for _ in range(4):
            append(topic)
        stale = make_store(near).topic("t")
        near.delete(f"t/{commit_path(2)}")
        before = contents(near)
        with pytest.raises(CorruptTopicError, match=r"COMMIT-3.*commit 3 exists"):
            append(make_store(near).topic("t"))
        assert contents(near) == before
        assert values(stale) == [b"k"] * 4

    def test_reader_does_not_take_the_gap_for_the_end(self, near: ObjectStore) -> None:
        """Neither one that opens the topic, nor one that had it open."""
        time = Clock()
        writer = make_store(near).create_topic("t")
        append(writer)
        reader = make_store(near, time).topic("t")
        for _ in range(4):
            append(writer)
        time.tick(2 * MINUTE_MS)
        commit = near.read(f"t/{commit_path(2)}") or b""
        near.delete(f"t/{commit_path(2)}")
        with pytest.raises(CorruptTopicError, match=r"COMMIT-3.*commit 3 exists") as caught:
            reader.read()
        assert caught.value.path == commit_path(2)
        with pytest.raises(CorruptTopicError, match=r"COMMIT-3.*commit 3 exists"):
            make_store(near).topic("t")
        near.create(f"t/{commit_path(2)}", commit)
        assert values(reader) == [b"k"] * 5

    @pytest.mark.parametrize("missing", [1, 2, 6, 7, 8, 9, 10])
    def test_reader_of_a_far_store_does_not_take_the_gap_for_the_end(self, missing: int) -> None:
        """Whether the commits are read in one wave or in two, and by a reader that goes on."""
        time = Clock()
        far = FarStore(time)
        writer = make_store(far).create_topic("t")
        readers = []
        for _ in range(12):
            readers.append(make_store(far, time).topic("t"))
            append(writer)
        far.delete(f"t/{commit_path(missing)}")
        with pytest.raises(CorruptTopicError, match="COMMIT-3"):
            make_store(far).topic("t")
        time.tick(2 * MINUTE_MS)
        with pytest.raises(CorruptTopicError, match="COMMIT-3"):
            readers[missing - 1].read()

    def test_directory_in_place_of_a_commit_is_a_gap(self, tmp_path: Path) -> None:
        topic = make_store(LocalStore(tmp_path)).create_topic("t")
        for _ in range(4):
            append(topic)
        (tmp_path / "t" / commit_path(2)).unlink()
        (tmp_path / "t" / commit_path(2)).mkdir()
        with pytest.raises(CorruptTopicError, match="COMMIT-3"):
            make_store(LocalStore(tmp_path)).topic("t")

    @pytest.mark.parametrize("hint", [None, b"garbage", b'{"root_version":9}'])
    def test_listing_shows_a_gap_of_any_length(self, near: ObjectStore, hint: bytes | None) -> None:
        topic = make_store(near).create_topic("t")
        for _ in range(9):
            append(topic)
        for version in range(2, 9):
            near.delete(f"t/{commit_path(version)}")
        near.delete(f"t/{HINT_PATH}")
        if hint is not None:
            near.write(f"t/{HINT_PATH}", hint)
        with pytest.raises(CorruptTopicError, match=r"COMMIT-3.*commit 9 exists"):
            make_store(near).topic("t")

    def test_hint_alone_is_no_gap(self, near: ObjectStore) -> None:
        """What a hint says proves nothing [HINT-1]."""
        append(make_store(near).create_topic("t"))
        near.write(f"t/{HINT_PATH}", b'{"root_version":9}')
        assert values(make_store(near).topic("t")) == [b"k"]

    def test_void_commit_beyond_the_end_is_no_gap(self, near: ObjectStore) -> None:
        append(make_store(near).create_topic("t", config=IN_FILES))
        body = (near.read(f"t/{commit_path(1)}") or b"").replace(b'"version":1', b'"version":3')
        void = edited(body, lambda commit: commit.update(topic_id="old"))
        near.create(f"t/{commit_path(3)}", void)
        topic = make_store(near).topic("t")
        append(topic)
        append(topic)
        assert (topic.version, topic.count()) == (4, 3)

    def test_root_beyond_the_gap_is_read(self, near: ObjectStore) -> None:
        """Also by a reader that begins before the gap."""
        near = near.with_limits(OFTEN_A_ROOT)
        time = Clock()
        writer = make_store(near).create_topic("t", config=IN_FILES)
        append(writer)
        reader = make_store(near, time).topic("t")
        for _ in range(6):
            append(writer)
        near.delete(f"t/{commit_path(2)}")
        near.delete(f"t/{HINT_PATH}")
        near.write(f"t/{HINT_PATH}", b'{"root_version":null}')
        assert values(make_store(near).topic("t")) == [b"k"] * 7
        time.tick(2 * MINUTE_MS)
        assert values(reader) == [b"k"] * 7

    def test_warm_handle_goes_on_beyond_the_gap(self, near: ObjectStore) -> None:
        topic = make_store(near).create_topic("t")
        for _ in range(4):
            append(topic)
        near.delete(f"t/{commit_path(2)}")
        assert append(topic).offsets == {0: (4, 5)}

    @pytest.mark.parametrize("missing", [2, 7, 8, 9])
    def test_append_into_a_gap_of_a_far_store_is_refused(self, missing: int) -> None:
        """Whether the commits are read in one wave or in two."""
        far = FarStore(Clock())
        topic = make_store(far).create_topic("t")
        for _ in range(12):
            append(topic)
        far.delete(f"t/{commit_path(missing)}")
        with pytest.raises(CorruptTopicError, match="COMMIT-3"):
            append(make_store(far).topic("t"))

    def test_commit_of_another_writer_beyond_ours_is_no_gap(self) -> None:
        """It may follow before we look."""
        far = FarStore(lambda: None)

        def follow(verb: str, key: str) -> Fault | None:
            put = [commit_path(n) for n in (1, 2) if far.read(f"t/{commit_path(n)}")]
            if (verb, key) == ("read", f"t/{commit_path(2)}") and put == [commit_path(1)]:
                append(other, "other")
            return None

        make_store(far).create_topic("t")
        other = make_store(far).topic("t")
        assert append(make_store(FaultyStore(far, follow)).topic("t"), "ours").version == 1
        assert values(other) == [b"ours", b"other"]


class TestRequests:
    """What the proof costs on a store that is far away and tells its time."""

    @pytest.mark.records_in("commits", "files")
    def test_fresh_writer_makes_no_extra_request(self, in_files: bool) -> None:
        """The reply before a put tells when its state was true: of a file, or of the last put."""
        time = Clock()
        counting = CountingStore(FarStore(time))
        topic = make_store(counting, in_files=in_files).create_topic("t")
        for _ in range(3):
            time.tick((MINUTE_MS if in_files else MINUTE_MS // 2) - 1)
            counting.reset()
            append(topic)
            assert counting.counts == {"create": 1, **({"open_output": 1} if in_files else {})}

    def test_cold_writer_makes_no_extra_request(self) -> None:
        counting = CountingStore(FarStore(Clock()))
        append(make_store(counting).create_topic("t"))
        topic = make_store(counting).topic("t")
        counting.reset()
        append(topic)
        assert counting.counts == {"create": 1}

    def test_idle_writer_confirms_its_state_once(self) -> None:
        time = Clock()
        counting = CountingStore(FarStore(time))
        topic = make_store(counting).create_topic("t")
        time.tick(MINUTE_MS)
        counting.reset()
        append(topic)
        assert counting.counts == {"read": 2, "create": 1}
        assert counting.by_key["read", f"t/{commit_path(0)}"] == 1

    def test_writer_that_took_a_minute_proves_its_put(self) -> None:
        time = Clock()
        counting = CountingStore(FarStore(time))
        writer = make_store(counting).create_topic("t")
        staged = plan_append(writer).stage(kafka(["k"]))

        def decide(verb: str, key: str) -> None:
            if verb == "create":
                time.tick(MINUTE_MS)

        slow = make_store(FaultyStore(counting, decide)).topic("t")
        counting.reset()
        plan_append(slow, refresh=False).commit([staged], keep_files=True)
        assert counting.by_key["read", f"t/{commit_path(0)}"] == 1
        assert counting.counts == {"read": 2, "create": 1}

    def test_reader_that_polls_confirms_its_state_once_a_minute(self) -> None:
        time = Clock()
        counting = CountingStore(FarStore(time))
        topic = make_store(counting).create_topic("t")
        counting.reset()
        for _ in range(60):
            time.tick(10_000)
            topic.end_offsets()
        assert counting.counts == {"read": 60 + 2 * 10}

    def test_store_that_tells_no_time_is_asked_each_time(self) -> None:
        counting = CountingStore(FarStore(lambda: None))
        topic = make_store(counting).create_topic("t")
        counting.reset()
        append(topic)
        assert counting.counts == {"read": 2, "create": 1}


class TestVoidCommits:
    @pytest.fixture
    def topic(self, near: ObjectStore) -> Topic:
        """Versions 2, 5 and 6 are void, with times in the far future and the far past."""
        clock = Clock()
        topic = make_store(near, clock).create_topic("t", config=IN_FILES)
        for version, at in ((2, 10**15), (5, 5), (6, 10**15)):
            while topic.version < version - 1:
                clock.tick(1000)
                append(topic)
            body = near.read(f"t/{commit_path(1)}") or b""
            commit = decode_commit(body, 1)
            for old, new in (
                (b'"version":1', b'"version":%d' % version),
                (commit.topic_id.encode(), b"another"),
                (b'"committed_at_ms":%d' % commit.committed_at_ms, b'"committed_at_ms":%d' % at),
            ):
                assert old in body
                body = body.replace(old, new)
            near.create(f"t/{commit_path(version)}", edited(body, lambda _: None))
        clock.tick(1000)
        append(topic)
        assert topic.version == 7
        return topic

    def test_history_leaves_them_out(self, topic: Topic) -> None:
        assert rows(topic.history(), "version") == [7, 4, 3, 1, 0]
        assert rows(topic.history(limit=2), "version") == [7, 4]

    def test_they_have_no_effect(self, topic: Topic, near: ObjectStore) -> None:
        cold = make_store(near).topic("t")
        assert cold.count() == 4
        assert cold.end_offsets() == {0: 4}
        assert cold.verify(data=True), str(cold.verify())

    def test_time_travel_passes_over_them(self, topic: Topic) -> None:
        history = topic.history()
        times = dict(zip(rows(history, "version"), rows(history, "committed_at"), strict=True))
        for version, at in times.items():
            assert topic.version_at(at) == version
        assert [topic.count(version=v) for v in range(8)] == [0, 1, 1, 2, 3, 3, 3, 4]

    def test_vacuum_reads_past_them(self, topic: Topic, near: ObjectStore) -> None:
        now = Clock(near.now_ms())
        vacuumed = (
            make_store(near, now).topic("t").vacuum(retention_ms=0, dry_run=False, force=True)
        )
        assert vacuumed.files == ()
        assert make_store(near).topic("t").count() == 4

    def test_root_is_never_written_at_one(self, topic: Topic, near: ObjectStore) -> None:
        manifest = Manifest(near.below("t"))
        state = manifest.load_at(6)
        assert state is not None
        assert (state.version, state.effective_version) == (6, 4)
        assert manifest.write_root(state, lambda: "leaf") is state
        assert manifest.hinted_root() is None

    def test_partitions_of_another_topic_do_not_matter(self, topic: Topic) -> None:
        append(topic)
        topic.append(kafka(["a"], partition=ints(0)))
        assert topic.count() == 6


def test_root_of_a_removed_topic_is_not_taken_for_the_new_one(near: ObjectStore) -> None:
    """A hint and a root of the old topic that a late writer left behind."""
    old = make_store(near).create_topic("t")
    for _ in range(64):
        append(old, "old")
    kept = {k: v for k, v in contents(near).items() if "root" in k or k.endswith(HINT_PATH)}
    assert len(kept) == 2
    remove(near)
    new = make_store(near).create_topic("t")
    for _ in range(66):
        append(new, "new")
    for key, data in kept.items():
        near.write(key, data or b"")
    with pytest.raises((CorruptTopicError, TopicNotFoundError)):
        append(old, "old")
