"""Two mirrors of one topic, beside a writer and a job at the source, or a job or a writer at the
copy, in every order: nothing is lost or there twice, and a version that the copy names is shown as
it is. The checker finds planted bugs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from pylogtable.errors import CommitConflictError, LogTableError
from pylogtable.format.json_codec import encode
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Hint, Mirror
from pylogtable.format.paths import HINT_PATH, commit_path, parse_commit_path
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.topic_log import seal
from pylogtable.mirror import copying, removing, sync
from pylogtable.mirror.options import MirrorOptions
from pylogtable.mirror.plan import new_copy
from pylogtable.mirror.start import mirror
from pylogtable.storage.base import Created, ObjectInfo, ObjectStore
from pylogtable.topic import Topic
from tests.depth import DEEP
from tests.model.checker import Checker, Faults, Outcome, Told, Writer
from tests.model.exploring import found, holds
from tests.model.publishers import NOW_MS, Beginning, Work, open_topic
from tests.model.replay import Objects, ObjectsStore
from tests.model.writers import is_commit_or_data
from tests.stores import SerialPool, _Wrapper

NEAR, FAR = "near/t/", "far/t/"
GONE = "b"


class Below(_Wrapper):
    """The objects of a store below a prefix, as a store."""

    @property
    def url(self) -> str:
        return f"model://{self._prefix}"

    def read(self, key: str) -> bytes | None:
        return self._inner.read(self._prefix + key)

    def size_of(self, key: str) -> int | None:
        return self._inner.size_of(self._prefix + key)

    def create(self, key: str, data: bytes) -> Created:
        return self._inner.create(self._prefix + key, data)

    def write(self, key: str, data: bytes) -> None:
        self._inner.write(self._prefix + key, data)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        for entry in self._inner.list(self._prefix + prefix):
            yield replace(entry, key=entry.key.removeprefix(self._prefix))

    def delete(self, key: str) -> None:
        self._inner.delete(self._prefix + key)

    @contextmanager
    def open_output(self, key: str) -> Iterator[pa.NativeFile]:
        with self._inner.open_output(self._prefix + key) as sink:
            yield sink

    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        return self._inner.open_input(self._prefix + key, size_bytes)

    def copy_from(self, source: ObjectStore, key: str, size_bytes: int) -> None:
        data = source.read(key)
        assert data is not None
        self.write(key, data)


class There:
    """A store that has the copy already."""

    url = "memory://there"

    def __init__(self, copy: Topic) -> None:
        self._copy = copy
        self._store = copy._log.store

    def _open_copy(self, name: str, plan: object) -> tuple[Topic, bool]:
        return self._copy, False


def near(store: ObjectStore, ids: str) -> Topic:
    return open_topic(Below(store, NEAR), ids)


def far(store: ObjectStore, ids: str) -> Topic:
    return open_topic(Below(store, FAR), ids)


def mirroring(name: str, **options: Any) -> Writer:
    def program(store: ObjectStore, told: list[Told]) -> None:
        try:
            mirror(near(store, f"{name}n"), There(far(store, f"{name}f")), MirrorOptions(**options))
            told.append((name, ("mirrored",)))
        except CommitConflictError:
            told.append((name, ("refused",)))
        except LogTableError as error:
            told.append((name, ("failed", f"{type(error).__name__}: {error}")))

    return Writer(name, program)


def doing(name: str, open_side: Callable[[ObjectStore, str], Topic], *works: Work) -> Writer:
    def program(store: ObjectStore, told: list[Told]) -> None:
        try:
            topic = open_side(store, name)
            for work in works:
                work(topic)
            told.append((name, ("done",)))
        except LogTableError as error:
            told.append((name, ("failed", f"{type(error).__name__}: {error}")))

    return Writer(name, program)


def erase(topic: Topic) -> None:
    topic.erase(keys=[GONE], threads=1)


def merge(topic: Topic) -> None:
    topic.merge(threads=1)


def vacuum(topic: Topic) -> None:
    topic.vacuum(dry_run=False)


def append(topic: Topic) -> None:
    topic.append(pa.table({"k": ["own"], "n": [77]}))


def promote(topic: Topic) -> None:
    topic.promote()


@pytest.fixture(autouse=True)
def serial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "Threads", SerialPool)


def behind(*, erased: bool = False, in_files: bool = True) -> dict[str, bytes]:
    """A topic, and a copy that lacks its last records. Of the others the source may have erased
    some."""
    begun = Beginning(in_files=in_files)
    begun.append("ab")
    store = ObjectsStore({NEAR + key: data for key, data in begun.objects.items()})
    source = near(store, "more")
    mark = Mirror(source_id=source.topic_id)
    change = new_copy(None, source._log.known, mark, {}, "far")
    created = seal(change, None, "copied", "copy", 0)
    store.objects[FAR + commit_path(0)] = encode(created)
    store.objects[FAR + HINT_PATH] = encode(Hint(root_version=None))
    mirror(source, There(far(store, "first")), MirrorOptions())
    if erased:
        erase(source)
    append(source)
    return store.objects


def merged_late() -> dict[str, bytes]:
    """A copy with several small segments, in some of which the source has erased records."""
    objects = behind()
    store = ObjectsStore(objects)
    source = near(store, "later")
    mirror(source, There(far(store, "second")), MirrorOptions())
    erase(source)
    return store.objects


def is_settled(key: str) -> bool:
    """Mirrors look which files the copy has, so it matters when one is written there."""
    commit = parse_commit_path(key.removeprefix(FAR))
    return commit is not None or is_commit_or_data(key.removeprefix(NEAR))


@cache
def _records_at(commits: tuple[tuple[str, bytes], ...], side: str, version: int) -> frozenset[Any]:
    topic = open_topic(Below(ObjectsStore(dict(commits)), side), "look")
    table = topic.read(columns=["offset", "k", "n"], version=version).read_all()
    rows = list(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
    assert len({row[0] for row in rows}) == len(rows)
    return frozenset(rows)


def judge(objects: Objects, told: tuple[Told, ...]) -> str | None:
    if failed := [answer for _, answer in told if answer[0] == "failed"]:
        return f"a job failed: {failed}"
    store = ObjectsStore(objects)
    source, copy = near(store, "judge"), far(store, "judge")
    if not copy.verify(data=True):
        return f"the copy is damaged: {copy.verify(data=True)}"
    everything = tuple(sorted(objects.items()))
    newest = _records_at(everything, NEAR, source.version)
    noted = None
    for version in range(copy.version + 1):
        mark = copy.at(version).snapshot.mirror
        assert mark is not None
        if mark.ended is not None:
            return _taken_over(source, copy, told)
        if mark.version == noted:
            continue
        noted = mark.version
        assert noted is not None
        mine = _records_at(everything, FAR, version)
        theirs = _records_at(everything, NEAR, noted)
        # Another mirror may have removed what a later version of the source no longer has.
        if not theirs & newest <= mine <= theirs:
            return f"version {version} has {sorted(mine)}, and {noted} of the source {theirs}"
    if any(answer[0] == "refused" for _, answer in told):
        return f"a mirror was refused: {told}"
    mirror(source, There(copy), MirrorOptions())
    if _records_at(tuple(sorted(store.objects.items())), FAR, copy.version) != newest:
        return "the next mirror does not make them equal"
    return None


def judge_archive(objects: Objects, told: tuple[Told, ...]) -> str | None:
    """Nothing is lost once the copy has its own retention [MIR-4]."""
    if [answer for _, answer in told if answer != ("mirrored",)]:
        return f"a mirror failed: {told}"
    copy = far(ObjectsStore(objects), "judge")
    everything = tuple(sorted(objects.items()))
    kept: frozenset[Any] = frozenset()
    for version in range(copy.version + 1):
        mark = copy.at(version).snapshot.mirror
        if mark is not None and mark.own_retention:
            mine = _records_at(everything, FAR, version)
            if not kept <= mine:
                return f"version {version} has lost {sorted(kept - mine)}"
            kept = mine
    return None if kept else "the copy has no retention of its own"


def _taken_over(source: Topic, copy: Topic, told: tuple[Told, ...]) -> str | None:
    """The records of whoever took the copy over are there, after those of the source."""
    try:
        mirror(source, There(copy), MirrorOptions())
    except CommitConflictError:
        pass
    except LogTableError as error:
        return f"a mirror failed: {error}"
    else:
        return "a mirror goes on with a copy that was taken over"
    if ("owner", ("done",)) not in told:
        return f"the copy was taken over, but: {told}"
    return None


def with_old_file() -> dict[str, bytes]:
    """In the store of the copy is a file of a mirror that was killed long ago."""
    objects = behind()
    (path,) = [
        key.removeprefix(NEAR)
        for key in objects
        if key.startswith(NEAR + "partition=") and FAR + key.removeprefix(NEAR) not in objects
    ]
    return {**objects, FAR + path: objects[NEAR + path]}


def is_near_and_settled(key: str) -> bool:
    """A vacuum removes files of the copy, and commits."""
    return key.startswith(NEAR) and is_settled(key)


def explore(
    start: Objects,
    *writers: Writer,
    faults: Faults | None = None,
    stops: bool = False,
    settled: Callable[[str], bool] = is_settled,
    judge: Callable[[Objects, tuple[Told, ...]], str | None] = judge,
) -> Outcome:
    outcome = Checker(
        start,
        writers,
        faults or Faults(0),
        judge,
        settled=settled,
        store_ms=NOW_MS,
        first_violation_only=stops,
    ).explore()
    print(f"{outcome.schedules} schedules, {outcome.ends} ends, {outcome.executions} executions")
    return outcome


ONE, TWO = mirroring("one"), mirroring("two")


@pytest.mark.records_in("commits", "files")
@pytest.mark.parametrize("erased", [False, *[True] * DEEP])
def test_two_mirrors(erased: bool, in_files: bool) -> None:
    holds(explore(behind(erased=erased, in_files=in_files), ONE, TWO), 100)


def test_two_mirrors_beside_a_writer_at_the_source() -> None:
    holds(explore(behind(), ONE, TWO, doing("writer", near, append)), 1000)


@pytest.mark.records_in("commits", "files")
def test_mirrors_beside_an_erase_at_the_source(in_files: bool) -> None:
    others = (TWO,) if DEEP else ()
    holds(explore(behind(in_files=in_files), ONE, *others, doing("eraser", near, erase)), 1000)


@pytest.mark.parametrize("erased", [False, True])
def test_a_mirror_beside_a_merge_of_the_copy(erased: bool) -> None:
    start = merged_late() if erased else behind()
    holds(explore(start, ONE, doing("merger", far, merge)), 1000)


@pytest.mark.parametrize("work", [append, promote])
def test_mirrors_beside_someone_who_takes_the_copy_over(work: Work) -> None:
    others = (TWO,) if DEEP else ()
    holds(explore(behind(erased=True), ONE, *others, doing("owner", far, work)), 1000)


ARCHIVING = mirroring("archiving", retention="own")


def test_mirrors_beside_one_that_gives_the_copy_its_own_retention() -> None:
    others = (TWO,) if DEEP else ()
    start = behind(erased=True)
    holds(explore(start, ONE, ARCHIVING, *others, judge=judge_archive), 1000)


def test_a_mirror_beside_a_vacuum_of_the_copy() -> None:
    writers = ONE, doing("vacuum", far, vacuum)
    holds(explore(with_old_file(), *writers, settled=is_near_and_settled), 1000)


def test_a_lost_or_late_put() -> None:
    faults = Faults(1, frozenset({"lost", "late", "self_retry"}))
    holds(explore(behind(erased=DEEP), ONE, TWO, faults=faults), 1000)


class TestPlantedBugs:
    """Where another guard catches a bug, a mirror fails that should have gone on."""

    def test_an_old_state_of_the_source_is_not_refreshed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def step(run: sync.Mirroring) -> bool:
            return run._step_to(run._source.latest())

        monkeypatch.setattr(sync.Mirroring, "_step", step)
        writers = ONE, TWO, doing("writer", near, append)
        found(explore(behind(), *writers, stops=True), "the source has lost")

    def test_the_ends_are_not_compared(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The segments are put where the copy ends now."""
        right = sync.plan_arrival_commit

        def moved(
            copy: LogState, source: object, mark: object, segments: Any, *args: Any, **options: Any
        ) -> Any:
            placed, at = [], copy.snapshot.partitions[0].end
            for segment in segments:
                end = at + segment.end_offset - segment.base_offset
                placed.append(msgspec.structs.replace(segment, base_offset=at, end_offset=end))
                at = end
            return right(copy, source, mark, placed, *args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(sync, "plan_arrival_commit", moved)
        monkeypatch.setattr("pylogtable.format.partition_state.floor_fault", lambda *_, **__: None)
        found(explore(behind(), ONE, TWO, stops=True), "far")

    def test_removals_do_not_look_at_the_retention(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sync, "check_same_retention", lambda mirror, **_: mirror)
        outcome = explore(behind(erased=True), ONE, ARCHIVING, judge=judge_archive, stops=True)
        found(outcome, "has lost")

    def test_the_mark_is_not_looked_at(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def unchecked(copy: Snapshot, source: Snapshot, url: str) -> Mirror:
            assert copy.mirror is not None
            return msgspec.structs.replace(copy.mirror, ended=None)

        monkeypatch.setattr(sync, "check_copy", unchecked)
        writers = ONE, doing("owner", far, promote)
        found(explore(behind(), *writers, stops=True), "the mirroring has ended in version")
        monkeypatch.setattr("pylogtable.format.snapshot.mirror_fault", lambda *_: None)
        found(explore(behind(), *writers, stops=True), "goes on with a copy that was taken over")

    def test_old_files_are_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = copying.usable_files
        monkeypatch.setattr(sync, "usable_files", lambda units, there, _: whole(units, there, 0))
        writers = ONE, doing("vacuum", far, vacuum)
        outcome = explore(with_old_file(), *writers, settled=is_near_and_settled, stops=True)
        found(outcome, "the copy is damaged")

    def test_old_files_are_overwritten(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sync, "files_there", lambda *_: {})
        writers = ONE, doing("vacuum", far, vacuum)
        outcome = explore(with_old_file(), *writers, settled=is_near_and_settled, stops=True)
        found(outcome, "the copy is damaged")

    def test_records_are_not_removed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(removing, "plan_removals", lambda *_: ())
        found(explore(behind(erased=True), ONE, stops=True), "version")

    def test_segments_that_were_merged_meanwhile_are_replaced(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pylogtable.mirror.removals_plan.still_fits", lambda *_: True)
        writers = ONE, doing("merger", far, merge)
        found(explore(merged_late(), *writers, stops=True), "a mirror was refused")
