"""Writers for the checker, around the real `AppendPlan.commit`, and what must hold in the end."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
import pyarrow as pa

from pylogtable.append.stager import Staged
from pylogtable.engine import plan_append
from pylogtable.errors import (
    CommitUnknownError,
    CorruptTopicError,
    LogTableError,
    StorageError,
    TopicNotFoundError,
)
from pylogtable.format.inline import from_text, own_entries, sizes
from pylogtable.format.json_codec import decode_commit, decode_hint, encode
from pylogtable.format.model import Change, Commit, Hint, Segment, StagedSegment
from pylogtable.format.paths import (
    HINT_PATH,
    MANIFEST_DIR,
    commit_path,
    is_segment_path,
    object_of,
    parse_commit_path,
    parse_inline_path,
    segment_path,
)
from pylogtable.format.snapshot import Snapshot, apply
from pylogtable.jobs.vacuum_plan import Listed, Needed, plan_vacuum
from pylogtable.limits import Limits
from pylogtable.log.manifest import Manifest
from pylogtable.log.topic_log import seal
from pylogtable.runtime import Runtime
from pylogtable.storage.base import Created, ObjectStore
from pylogtable.topic import Topic
from pylogtable.topics.column_types import make_fields
from pylogtable.topics.plan import new_topic_info, plan_create
from tests.model.checker import REST, TICK_MS, Program, Told, Writer
from tests.model.replay import Objects, ObjectsStore

PARTITIONS = 2


@dataclass(frozen=True)
class Append:
    """Some records for each partition named; `name` is how they are known again. If they are
    `given_from` an offset, they bring their offsets. If they are `inline`, they are in their
    commit, and in no file."""

    name: str
    records: tuple[tuple[int, int], ...] = ((0, 2), (1, 1))
    txn: tuple[str, int] | None = None
    given_from: int | None = None
    inline: bool = False

    def staged(self, incarnation: str, now_ms: int, topic_id: str) -> Staged:
        """What an incarnation of a writer commits. Nobody looks into rows to commit them, so they
        can be any bytes: they tell whose they are."""
        files = self.files(incarnation)
        if not self.inline:
            return Staged(files, now_ms, topic_id)
        rows = f"{self.name}x{incarnation}".encode()
        counts = [file.records for file in files]
        firsts = itertools.accumulate(counts, initial=0)
        return Staged(
            tuple(
                msgspec.structs.replace(file, path=f"@{first}", size_bytes=size)
                for file, first, size in zip(files, firsts, sizes(counts, len(rows)), strict=False)
            ),
            now_ms,
            topic_id,
            rows,
        )

    def files(self, incarnation: str) -> tuple[StagedSegment, ...]:
        first = self.given_from
        return tuple(
            StagedSegment(
                partition=partition,
                predicted_base=first or 0,
                given_end=None if first is None else first + count,
                records=count,
                size_bytes=1,
                min_timestamp_us=0,
                max_timestamp_us=0,
                path=segment_path(partition, first or 0, f"{self.name}x{incarnation}"),
            )
            for partition, count in self.records
        )


class LocalTime:
    """A writer's own clock, which it sets when it wakes up; waiting moves the monotonic one."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.seconds = 0.0

    def pause(self, seconds: float) -> None:
        self.seconds += seconds

    def runtime(self, ids: str, patience_seconds: float) -> Runtime:
        numbers = itertools.count()
        return Runtime(
            clock=lambda: self.now_ms,
            new_id=lambda: f"{ids}{next(numbers)}",
            monotonic=lambda: self.seconds,
            pause=self.pause,
            chance=lambda: 1.0,
            later=lambda work: None,
            beside=lambda work: None,
            patience_seconds=patience_seconds,
        )


def appending(
    name: str,
    appends: Sequence[Append],
    *,
    patience_seconds: float = 100.0,
    repeats_doubtful: bool = False,
    rests: bool = False,
    knows_time: bool = True,
    waits_for: str | None = None,
    limits: Limits | None = None,
) -> Program:
    """Opens the topic and makes its appends, one after the other; with `rests` it sleeps before
    each, and time may pass. Unless it `knows_time`, its clock stands still. It appends nothing if
    the object that it `waits_for` is not there."""

    def program(store: ObjectStore, told: list[Told]) -> None:
        time = LocalTime()
        if limits is not None:
            store.limits = limits
        try:
            topic = Topic("t", store, time.runtime(name, patience_seconds))
        except (StorageError, TopicNotFoundError, CorruptTopicError):
            return
        if waits_for is not None and store.read(waits_for) is None:
            return
        for append in appends:
            if rests:
                now_ms = int(store.read(REST))  # type: ignore[arg-type]
                time.now_ms = now_ms if knows_time else 0
            for attempt in ("a", "b", "c") if repeats_doubtful else ("a",):
                staged = append.staged(name + attempt, time.now_ms, topic.topic_id)
                try:
                    result = plan_append(topic, refresh=False).commit(
                        [staged], txn=append.txn, keep_files=True
                    )
                except CommitUnknownError:
                    told.append((append.name, "unknown"))
                    continue
                except LogTableError as error:
                    told.append((append.name, ("failed", name + attempt, type(error).__name__)))
                else:
                    told.append((append.name, tuple(sorted(result.offsets.items()))))
                break

    return program


def writer(name: str, appends: Sequence[Append], **how: Any) -> Writer:
    """After a crash it makes all of its appends again."""
    again = Writer(f"{name}again", appending(f"{name}again", appends, **how))
    return Writer(name, appending(name, appends, **how), recovery=again)


def growing(commits: int) -> Program:
    """Makes commits that change nothing, and writes a root at the last of them."""

    def program(store: ObjectStore, told: list[Told]) -> None:
        manifest = Manifest(store)
        state = manifest.load()
        assert state is not None
        while state.version < commits:
            following = state.version + 1
            commit = seal(Change(operation="vacuum"), state, f"grown{following}", "topic", 0)
            if store.create(commit_path(following), encode(commit)) is not Created.YES:
                commit = decode_commit(store.read(commit_path(following)) or b"", following)
            state = apply(state, commit)
        manifest.write_root(state, lambda: "leaf")

    return program


def rooting(store: ObjectStore, told: list[Told]) -> None:
    """Writes a root at the newest version, and the hint to it."""
    manifest = Manifest(store)
    snapshot = manifest.load()
    assert snapshot is not None
    manifest.write_root(snapshot, lambda: "leaf")


def cleaning(store: ObjectStore, told: list[Told]) -> None:
    """Removes the commits below the root that the hint names, and that root is as old as the
    manifest's retention: whoever started at an older one has come to its end since."""
    hint = decode_hint(store.read(HINT_PATH) or b"")
    if hint is not None and hint.root_version is not None:
        for version in range(hint.root_version):
            store.delete(commit_path(version))


def hasty_cleaning(store: ObjectStore, told: list[Told]) -> None:
    """Writes the root itself and removes at once what it stands for, whatever the hint says."""
    manifest = Manifest(store)
    snapshot = manifest.load()
    assert snapshot is not None
    if manifest.write_root(snapshot, lambda: "leaf").root_version == snapshot.version:
        for version in range(snapshot.version):
            store.delete(commit_path(version))


def vacuuming(store: ObjectStore, told: list[Told]) -> None:
    """Removes what the real plan says, in its order, if everything below the root that the hint
    names is older than the manifest's retention: also older roots, but no commit that has live
    records [INL-6]."""
    hint = decode_hint(store.read(HINT_PATH) or b"")
    if hint is not None and hint.root_version is not None:
        listing = _listing(store)
        state = Manifest(store).roots.read(hint.root_version)
        assert state is not None
        _remove_garbage(store, state, listing)


def hasty_vacuuming(store: ObjectStore, told: list[Told]) -> None:
    """The same at once, with a root of its own."""
    manifest = Manifest(store)
    listing = _listing(store)
    state = manifest.load()
    assert state is not None
    if manifest.write_root(state, lambda: "leaf").root_version == state.version:
        _remove_garbage(store, state, listing)


def _listing(store: ObjectStore) -> list[Listed]:
    return [Listed(entry.key, entry.size_bytes, 0) for entry in store.list(MANIFEST_DIR)]


def _remove_garbage(store: ObjectStore, state: Snapshot, listing: list[Listed]) -> None:
    tiles = (tile for partition in state.partitions for tile in partition.tiles)
    live = frozenset(object_of(tile.path) for tile in tiles if isinstance(tile, Segment))
    marks = frozenset(mark.commit_version for mark in state.txns.values())
    needed = Needed(live, frozenset(state.leaves), state.version, marks)
    for entry in plan_vacuum(listing, needed, TICK_MS):
        store.delete(entry.key)


def removing(
    name: str, appends: Sequence[Append], *, anew: bool = True, mark: str = "removed"
) -> Program:
    """Removes the whole manifest, the oldest commits first, and creates another topic in its place,
    with some appends. Puts the object `mark` once the old topic is gone."""

    def program(store: ObjectStore, told: list[Told]) -> None:
        for entry in store.list("_manifest/"):
            store.delete(entry.key)
        if anew:
            store.write(commit_path(0), created("another"))
        store.write(mark, b"yes")
        if anew:
            appending(name, appends)(store, told)

    return program


def created(topic_id: str, *, combined: bool = False) -> bytes:
    """The commit that creates a topic."""
    config = {"combined.appends": combined}
    info = new_topic_info(make_fields({"n": pa.int64()}), [], PARTITIONS, config, 0)
    change = plan_create(None, info, "here", {})
    return encode(seal(change, None, f"create{topic_id}", topic_id, 0))


def is_commit_or_data(key: str) -> bool:
    """What nobody changes or removes, unless there is a vacuum or a topic is deleted."""
    return parse_commit_path(key) is not None or is_segment_path(key)


def start(
    appends: Sequence[Append],
    incarnations: Sequence[str],
    empty_commits: int = 0,
    committed: Sequence[Append] = (),
    *,
    combined: bool = False,
) -> dict[str, bytes]:
    """A new topic with some commits that change nothing, some appends whose records are in their
    commits, and the data files of all appends of all incarnations, written already."""
    first = created("topic", combined=combined)
    objects = {commit_path(0): first, HINT_PATH: encode(Hint(root_version=None))}
    for version in range(1, empty_commits + 1):
        state = Manifest(ObjectsStore(objects)).load()
        commit = seal(Change(operation="vacuum"), state, f"empty{version}", "topic", 0)
        objects[commit_path(version)] = encode(commit)
    for append in appends:
        for incarnation in () if append.inline else incarnations:
            for file in append.files(incarnation):
                objects[file.path] = b"rows"
    store = ObjectsStore(objects)
    appending("before", committed)(store, [])
    return store.objects


_FILE = re.compile(r"partition=\d+/\d+-(?P<append>[a-z0-9]+?)x(?P<incarnation>\w+)\.parquet")
_ROWS = re.compile(r"(?P<append>[a-z0-9]+?)x(?P<incarnation>\w+)")


@cache
def _commit(data: bytes, version: int) -> Commit:
    return decode_commit(data, version)


def judge(
    appends: Sequence[Append], *, may_leave_strays: bool = False
) -> Callable[[Objects, tuple[Told, ...]], str | None]:
    """What is wrong with a state in which all writers are at their end. With `may_leave_strays`,
    there may be commits beyond the newest, which an old handle has put."""
    by_name = {append.name: append for append in appends}

    def wrong(objects: Objects, told: tuple[Told, ...]) -> str | None:
        return next(_faults(objects, told, by_name, may_leave_strays), None)

    return wrong


def _faults(
    objects: Objects, told: tuple[Told, ...], by_name: dict[str, Append], may_leave_strays: bool
) -> Any:
    try:
        snapshot = Manifest(ObjectsStore(objects)).load()
    except LogTableError as error:
        yield f"the topic does not open: {error}"
        return
    if snapshot is None:
        yield "the topic is gone"
        return
    versions = {v for key in objects if (v := parse_commit_path(key)) is not None}
    if max(versions) > snapshot.version and not may_leave_strays:
        yield f"commit {max(versions)} is in the store and cannot be reached"
    commits = [_commit(objects[commit_path(v)], v) for v in sorted(versions)]
    twice = [i for i, n in Counter(c.commit_id for c in commits).items() if n > 1]
    if twice:
        yield f"commit id(s) {twice} in several versions"
    txns = Counter((txn.app_id, txn.version) for c in commits for txn in c.txns)
    if any(n > 1 for n in txns.values()):
        yield f"a txn in several commits: {txns}"
    committed: set[tuple[str, str]] = set()
    placed: dict[str, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for number, state in enumerate(snapshot.partitions):
        at = state.log_start
        for tile in state.tiles:
            assert isinstance(tile, Segment)
            if tile.base_offset != at:
                yield f"partition {number} is not dense at {at}"
            at = tile.end_offset
            if object_of(tile.path) not in objects:
                yield f"{tile.path} is committed and has been deleted"
                return
            match = _rows_of(objects, tile) if tile.is_inline else _FILE.fullmatch(tile.path)
            if match is None:
                yield f"{tile.path} has no records with the offsets of its entry"
                return
            committed.add((match["append"], match["incarnation"]))
            first = tile.base_offset + tile.row_groups[0]
            placed[match["append"]][number].append((first, tile.end_offset))
        if at != state.end:
            yield f"partition {number} ends at {state.end}, its segments at {at}"
    for name, where in placed.items():
        if any(len(ranges) > 1 for ranges in where.values()):
            yield f"append {name} is in the log twice: {dict(where)}"
        if dict(by_name[name].records) != {
            p: sum(end - first for first, end in ranges) for p, ranges in where.items()
        }:
            yield f"append {name} is not whole: {dict(where)}"
        given = by_name[name].given_from
        if given is not None and any(first != given for [(first, _)] in where.values()):
            yield f"append {name} brought the offset {given} and is at {dict(where)}"
    for name, answer in told:
        where = placed.get(name, {})
        if answer == "unknown":
            continue
        if answer[:1] == ("failed",):
            _, incarnation, error_name = answer
            if (name, incarnation) in committed:
                yield f"append {name} was told {error_name} and is at {dict(where)}"
        elif {p: [offsets] for p, offsets in answer} != dict(where):
            yield f"append {name} was told {answer} and is at {dict(where)}"


def _rows_of(objects: Objects, tile: Segment) -> re.Match[str] | None:
    """Whose records an entry has in a commit; None if that has no such entry [INL-3]."""
    place = parse_inline_path(tile.path)
    assert place is not None
    commit = _commit(objects[object_of(tile.path)], place[0])
    if tile not in own_entries(commit):
        return None
    return _ROWS.fullmatch(from_text(commit.rows or "", tile.path).decode())
