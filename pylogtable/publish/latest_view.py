"""Plans which rows a publication hides, for `publish.view` [PUB-9].

After appends and merges the cost is in proportion to what has changed. If records have vanished,
everything is computed anew: an older record of a key may be the newest now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pylogtable.errors import InvalidRequestError
from pylogtable.format.config import LATEST
from pylogtable.format.model import Commit, Segment
from pylogtable.format.snapshot import Snapshot
from pylogtable.publish.hidden_rows import (
    HiddenRows,
    RowChange,
    offsets_at,
    rows_at,
    rows_not_at,
)
from pylogtable.publish.key_looks import KeyLooks
from pylogtable.publish.newest_offsets import Moved
from pylogtable.publish.plan import Shown, TableChange, vanishes, whole
from pylogtable.publish.roaring import Numbers, Offsets, need_pyroaring, numbers, sorted_array
from pylogtable.publish.table import Published, Table
from pylogtable.read.plan import Span


@dataclass(frozen=True)
class Since:
    """What a table shows before a step: the commits and the spans that lead from it to the step."""

    shown: Shown
    commits: Sequence[Commit]
    spans: Sequence[Span]


def check_view(name: str, target: Snapshot) -> None:
    """Raise if the topic cannot be published with its view."""
    if target.config.publish_view != LATEST:
        return
    if not target.info.key:
        raise InvalidRequestError(
            f"topic {name!r} cannot be published with publish.view=latest: it has no key columns, "
            "so none of its records is the newest of a key. Publish its records: "
            "topic.alter(config={'publish.view': None})"
        )
    need_pyroaring()


def is_latest(published: Published | None, target: Snapshot) -> bool:
    """True if the table hides rows, or has to. Then it shows each new version in one step."""
    hides = published is not None and published.state.view == LATEST
    return hides or target.config.publish_view == LATEST


@dataclass(frozen=True)
class LatestView:
    """Plans what a table hides. `looks` are those of the publication."""

    table: Table
    looks: KeyLooks

    def plan(
        self,
        published: Published | None,
        since: Since | None,
        wanted: Shown,
        change: TableChange,
    ) -> HiddenRows:
        """What to hide, and what to show again, when the table shows `wanted` by this change.
        Without `since`, nothing is known of what it shows now."""
        snapshot = wanted.snapshot
        if published is not None and published.state.topic_id != snapshot.topic_id:
            published = None
        hides = published is not None and published.state.view == LATEST
        if snapshot.config.publish_view != LATEST:
            return self._show_all(published, wanted, change)
        if published is not None and since is not None and hides and _only_appends(since, wanted):
            moved = self.looks.moved(since.shown.state, wanted.state)
            return self._move(published, since, wanted, change, moved)
        return self._in_full(published if hides else None, wanted, change)

    def _in_full(
        self, published: Published | None, wanted: Shown, change: TableChange
    ) -> HiddenRows:
        newest = self.looks.newest(wanted.state)
        known = self._known(published, wanted, change)
        empty = numbers()
        changes: dict[str, RowChange] = {}
        total = 0
        for file in _files(wanted):
            rows = rows_not_at(self.looks.files, file, newest.get(file.partition, empty))
            before = known.get(file.path, empty)
            total += len(rows)
            if rows != before:
                changes[file.path] = RowChange(file, rows - before, before - rows)
        return HiddenRows(changes, total)

    def _show_all(
        self, published: Published | None, wanted: Shown, change: TableChange
    ) -> HiddenRows:
        known = self._known(published, wanted, change)
        files = {file.path: file for file in _files(wanted)}
        changes = {path: RowChange(files[path], numbers(), rows) for path, rows in known.items()}
        return HiddenRows(changes, 0)

    def _known(
        self, published: Published | None, wanted: Shown, change: TableChange
    ) -> Mapping[str, Numbers]:
        """The rows that are hidden now, in files that the table goes on to show."""
        if published is None:
            return {}
        added = {new.file.path for new in change.added}
        kept = [file for file in _files(wanted) if file.path not in added]
        return self.table.hidden_rows(published, [file.path for file in kept])

    def _move(
        self,
        published: Published,
        since: Since,
        wanted: Shown,
        change: TableChange,
        moved: Moved,
    ) -> HiddenRows:
        """Hidden rows of files that are replaced are hidden in the new files, too."""
        old = {file.path: file for span in since.spans for file in since.shown.files(span)}
        gone = [old[removed.file.path] for removed in change.removed]
        known = self.table.hidden_rows(published, [file.path for file in gone]) if gone else {}
        hidden = {number: found.copy() for number, found in moved.hidden.items()}
        for file in gone:
            if file.path in known:
                carried = offsets_at(self.looks.known, file, known[file.path])
                hidden[file.partition] = hidden.get(file.partition, numbers()) | carried
        shown, empty = moved.shown, numbers()
        added = {new.file.path: new.file for new in change.added}
        changes: dict[str, RowChange] = {}
        for path, file in added.items():
            mine = hidden.get(file.partition, empty) - shown.get(file.partition, empty)
            if rows := rows_at(self.looks.known, file, mine):
                changes[path] = RowChange(file, rows, empty)
        for file in _files_at(wanted, hidden, shown):
            if file.path not in added:
                changes[file.path] = RowChange(
                    file,
                    rows_at(self.looks.known, file, hidden.get(file.partition, empty)),
                    rows_at(self.looks.known, file, shown.get(file.partition, empty)),
                )
        more = sum(len(one.hidden) - len(one.shown) for one in changes.values())
        total = published.state.hidden_rows + more - sum(map(len, known.values()))
        return HiddenRows(changes, total)


def _only_appends(since: Since, wanted: Shown) -> bool:
    """True if no record has vanished, each key belongs where it did, and what is new is little
    beside what is there."""
    before, after = since.shown.snapshot.partitions, wanted.snapshot.partitions
    if len(before) != len(after) or any(map(vanishes, since.commits)):
        return False
    new = sum(now.end - was.end for was, now in zip(before, after, strict=True))
    there = sum(was.end - was.log_start for was in before)
    return new * 4 <= there and new <= since.shown.state.limits.key_lookup_rows


def _files(wanted: Shown) -> Iterator[Segment]:
    """All files that the table shows."""
    for span in whole(wanted.snapshot):
        yield from wanted.files(span)


def _files_at(wanted: Shown, *offsets: Offsets) -> Iterator[Segment]:
    """The files of the table that have records with these offsets."""
    for number in sorted({number for of in offsets for number in of}):
        found = sorted_array(_united(number, offsets))
        at = 0
        while at < len(found):
            offset = int(found[at])
            files = wanted.files(Span(number, _file_start(wanted, number, offset), offset + 1))
            file = next(file for file in files if file.base_offset <= offset < file.end_offset)
            yield file
            at = int(found.searchsorted(file.end_offset))


def _file_start(wanted: Shown, number: int, offset: int) -> int:
    """Where to begin to look for the file of an offset: a sealed copy may stand for several
    segments, and is found by the first of them."""
    for files in wanted.copies.values():
        first, last = files[0], files[-1]
        if first.partition == number and first.base_offset <= offset < last.end_offset:
            return first.base_offset
    return offset


def _united(number: int, offsets: Iterable[Offsets]) -> Numbers:
    united = numbers()
    for of in offsets:
        if number in of:
            united |= of[number]
    return united
