"""Clocks that are wrong by days: what a vacuum removes depends on the store's time [VAC-4], and no
commit comes from the future [COMMIT-12]."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylogtable import InvalidRequestError, StorageError, Store
from pylogtable.engine import plan_append
from pylogtable.format.json_codec import decode_commit
from pylogtable.format.paths import commit_path
from pylogtable.storage.local import LocalStore
from pylogtable.storage.memory import MemoryStore
from tests.builders import IN_FILES, T0, Clock, contents, kafka, make_store, rows
from tests.stores import AgingDisk, FarStore, Fault, FaultyStore

DAY = 86_400_000


@pytest.fixture
def time() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "disk"])
def objects(request: pytest.FixtureRequest, time: Clock, tmp_path: Path) -> MemoryStore | AgingDisk:
    """A store whose time is `time`."""
    return MemoryStore(clock=time) if request.param == "memory" else AgingDisk(tmp_path, time)


class TestVacuum:
    @pytest.mark.parametrize("skew_ms", [30 * DAY, DAY + 1, -DAY - 1, -(T0 - 5)])
    @pytest.mark.parametrize("dry_run", [False, True])
    def test_clock_that_differs_by_more_than_a_day_is_refused(
        self, objects: MemoryStore, time: Clock, skew_ms: int, dry_run: bool
    ) -> None:
        topic = make_store(objects, time).create_topic("t")
        staged = plan_append(topic).stage(kafka(["a"]))
        before = contents(objects)
        wrong = make_store(objects, Clock(time() + skew_ms)).topic("t")
        with pytest.raises(
            InvalidRequestError, match=r"clock says .* UTC, but it is 2023-11-14 22:13:20 UTC"
        ):
            wrong.vacuum(dry_run=dry_run)
        assert contents(objects) == before
        assert plan_append(topic, refresh=False).commit([staged]).records == 1

    @pytest.mark.parametrize("skew_ms", [DAY - 1, 1 - DAY])
    def test_ages_are_those_of_the_store(
        self, objects: MemoryStore, time: Clock, skew_ms: int
    ) -> None:
        topic = make_store(objects, time).create_topic("t", config=IN_FILES)
        plan_append(topic).stage(kafka(["a"]))
        time.tick(7 * DAY)
        vacuum = make_store(objects, Clock(time() + skew_ms)).topic("t").vacuum
        assert vacuum(dry_run=False).files == ()
        time.tick(1)
        assert len(vacuum(dry_run=False).files) == 1

    def test_handle_with_a_frozen_clock_loses_nothing(
        self, objects: MemoryStore, time: Clock
    ) -> None:
        frozen = make_store(objects, Clock()).create_topic("t", config=IN_FILES)
        busy = make_store(objects, time).topic("t")
        for _ in range(70):
            busy.append(kafka(["a"]))
        time.tick(30 * DAY)
        assert busy.vacuum(dry_run=False).manifest_files > 60
        assert frozen.append(kafka(["b"])).offsets == {0: (70, 71)}
        assert rows(busy.read(), "key") == [b"a"] * 70 + [b"b"]
        with pytest.raises(InvalidRequestError):
            frozen.vacuum()

    def test_dry_run_works_where_nothing_may_be_written(self, time: Clock) -> None:
        objects = MemoryStore(clock=time)
        make_store(objects, time).create_topic("t")

        class ReadOnly(FaultyStore):
            def below(self, prefix: str) -> ReadOnly:
                return ReadOnly(self._inner.below(prefix), lambda *_: None)

            def now_ms(self) -> int:
                raise StorageError("read only")

        topic = make_store(ReadOnly(objects, lambda *_: None), time).topic("t")
        assert topic.vacuum().files == ()
        with pytest.raises(StorageError):
            topic.vacuum(dry_run=False)

    def test_leftover_of_a_question_for_the_time_is_removed_when_old(
        self, tmp_path: Path, time: Clock
    ) -> None:
        disk = AgingDisk(tmp_path, time)
        topic = make_store(disk, time).create_topic("t")
        (tmp_path / "t" / ".tmp-now").touch()
        (left,) = disk.below("t").leftovers()
        time.now_ms = left.modified_ms + 7 * DAY + 1
        assert topic.vacuum(dry_run=False).files == (".tmp-now",)


class TestCommit:
    def test_clock_ahead_of_the_store_is_refused_before_anything_is_put(
        self, objects: MemoryStore, time: Clock
    ) -> None:
        topic = make_store(objects, time).create_topic("t")
        topic.append(kafka(["a"]))
        before = contents(objects)
        ahead = make_store(objects, Clock(time() + DAY + 1)).topic("t")
        for call in (
            lambda: ahead.append(kafka(["b"])),
            lambda: ahead.alter(partitions=2),
            lambda: make_store(objects, Clock(time() + DAY + 1)).create_topic("u"),
        ):
            with pytest.raises(InvalidRequestError, match=r"clock says 2023-11-15.*nothing was"):
                call()
        assert contents(objects) == before

    @pytest.mark.parametrize("clock_ms", [1, T0 - DAY - 1])
    def test_clock_behind_a_remote_store_is_refused(self, time: Clock, clock_ms: int) -> None:
        """Its timestamps are so old that retention would remove the records at once."""
        far = FarStore(time)
        topic = make_store(far, time).create_topic("t")
        before = contents(far)
        behind = Clock(clock_ms)
        for call in (
            lambda: make_store(far, behind).topic("t").append(kafka(["b"])),
            lambda: make_store(far, behind).create_topic("u"),
        ):
            with pytest.raises(InvalidRequestError, match=r"it is 2023-11-14.*nothing was"):
                call()
        assert contents(far) == before
        behind.now_ms = T0 - DAY
        make_store(far, behind).topic("t").append(kafka(["b"]))
        assert topic.count() == 1

    def test_clock_that_is_a_day_ahead_or_behind_its_own_disk_is_accepted(
        self, objects: MemoryStore, time: Clock
    ) -> None:
        topic = make_store(objects, time).create_topic("t")
        for clock in (Clock(time() + DAY), Clock(1)):
            make_store(objects, clock).topic("t").append(kafka(["a"]))
        times = [decode_commit(objects.read(f"t/{commit_path(n)}") or b"", n) for n in (1, 2)]
        assert [commit.committed_at_ms for commit in times] == [time() + DAY, time() + DAY + 1]
        time.tick(1000)
        topic.append(kafka(["a"]))
        assert topic.verify()

    def test_topic_with_a_commit_from_the_future_can_still_be_written(
        self, objects: MemoryStore, time: Clock
    ) -> None:
        topic = make_store(objects, time).create_topic("t", config=IN_FILES)
        topic.append(kafka(["a"]))
        key = f"t/{commit_path(1)}"
        body = objects.read(key) or b""
        year_2226 = b'"committed_at_ms":8080000000000'
        old = b'"committed_at_ms":%d' % decode_commit(body, 1).committed_at_ms
        cut = body.split(b',"checksum"')[0].rstrip(b"}")
        objects.write(key, cut.replace(old, year_2226) + b"}")
        cold = make_store(objects, time).topic("t")
        assert cold.append(kafka(["b"])).offsets == {0: (1, 2)}
        last = decode_commit(objects.read(f"t/{commit_path(2)}") or b"", 2)
        assert last.committed_at_ms == 8080000000001
        (problem,) = cold.verify(data=True).problems
        assert (problem.rule, problem.path) == ("COMMIT-12", commit_path(1))
        assert "2226" in problem.detail

    def test_reply_of_days_ago_does_not_make_a_clock_wrong(self, time: Clock) -> None:
        """Nothing was asked meanwhile."""
        far = FarStore(time)
        topic = make_store(far, time).create_topic("t")
        staged = plan_append(topic).stage(kafka(["a"]))
        time.tick(3 * DAY)
        assert plan_append(topic, refresh=False).commit([staged]).records == 1

    def test_store_that_tells_no_time_is_not_asked(self) -> None:
        asked: list[str] = []

        class Silent(FarStore):
            def now_ms(self) -> int:
                asked.append("now")
                return 0

            def below(self, prefix: str) -> Silent:
                return Silent(self._time, self._name, self._full(prefix.rstrip("/")) + "/")

        make_store(Silent(lambda: None), Clock(10**14)).create_topic("t")
        assert asked == []


class TestVerify:
    @pytest.fixture
    def vacuumed(self, time: Clock) -> tuple[MemoryStore, Store]:
        objects = MemoryStore(clock=time)
        store = make_store(objects, time)
        topic = store.create_topic("t", config=IN_FILES)
        topic.append(kafka(["a"]), txn=("kept", 1))
        topic.append(kafka(["a"]), txn=("old", 1))
        for _ in range(70):
            topic.append(kafka(["a"]))
        time.tick(30 * DAY)
        topic.vacuum(dry_run=False)
        topic.append(kafka(["a"]), txn=("old", 2))
        assert [v for v in range(64) if objects.read(f"t/{commit_path(v)}")] == [1, 2]
        return objects, store

    def test_commits_that_a_vacuum_keeps_are_no_problem(
        self, vacuumed: tuple[MemoryStore, Store]
    ) -> None:
        assert vacuumed[1].topic("t").verify()

    @pytest.mark.parametrize("txn", [None, ("kept", 2), ("kept", 1), ("new", 1)])
    def test_stranded_commit_below_the_kept_root_is_reported(
        self, vacuumed: tuple[MemoryStore, Store], txn: tuple[str, int] | None
    ) -> None:
        objects, store = vacuumed
        frozen = make_store(MemoryStore(), Clock()).create_topic("t", config=IN_FILES)
        frozen.append(kafka(["a"]), txn=txn)
        body = frozen._store.read(commit_path(1)) or b""
        body = body.split(b',"checksum"')[0].rstrip(b"}") + b"}"
        topic = store.topic("t")
        for old, new in (
            (b'"version":1,"commit_id"', b'"version":7,"commit_id"'),
            (frozen.topic_id.encode(), topic.topic_id.encode()),
        ):
            assert old in body
            body = body.replace(old, new)
        objects.create(f"t/{commit_path(7)}", body)
        (problem,) = topic.verify(data=True).problems
        assert (problem.rule, problem.path) == ("COMMIT-9", commit_path(7))
        assert topic.count() == 73


def test_disk_tells_the_time_of_its_last_write(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert store.last_reply_ms is None
    store.create("a", b"x")
    with store.open_output("b") as sink:
        sink.write(b"x")
    assert store.last_reply_ms == max(info.modified_ms for info in store.list())


def test_put_that_is_refused_for_the_clock_leaves_no_data_files(time: Clock) -> None:
    objects = MemoryStore(clock=time)
    make_store(objects, time).create_topic("t")
    ahead = make_store(FaultyStore(objects, _nothing), Clock(time() + 2 * DAY)).topic("t")
    with pytest.raises(InvalidRequestError):
        ahead.append(kafka(["a"]))
    assert not list(objects.list("t/partition=0/"))


def _nothing(verb: str, key: str) -> Fault | None:
    return None
