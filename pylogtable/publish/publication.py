"""Publication: show the topic to engines that read other table formats, over its own files.

It plans on a snapshot, as every job does. The table then shows exactly that version, whatever other
writers, jobs and publications do meanwhile [PUB-1].
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from pylogtable.arguments import names_in
from pylogtable.errors import (
    CorruptTopicError,
    InvalidRequestError,
    LogTableError,
    SegmentGoneError,
    TopicNotFoundError,
)
from pylogtable.format.config import PUBLISH_FORMATS, TopicConfig
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.job import MaintainedTopic, MaintainOptions
from pylogtable.jobs.merge_plan import MergeUnit
from pylogtable.jobs.work import RunUnits
from pylogtable.publish.key_looks import KeyLooks
from pylogtable.publish.latest_view import check_view
from pylogtable.publish.older_records import shows_older_records, warn_of_older_records
from pylogtable.publish.publisher import Publisher
from pylogtable.publish.report import DueTable, PublishedTable, PublishReport
from pylogtable.publish.sealing import Sealed, commit, write_copies
from pylogtable.publish.status import status_of
from pylogtable.publish.tables import tables_of
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.threads import map_parallel

_logger = logging.getLogger(__name__)

Result = TypeVar("Result")


@dataclass(frozen=True)
class Publication:
    """Brings the published tables up to the newest version. A unit of work is a sealed copy of a
    segment that a plain reader would read wrongly, or of neighbours that are in commits.

    Somebody who publishes a compacted topic is warned."""

    formats: Sequence[str] | None = None

    name: ClassVar[str] = "publication"
    warns_each_time: ClassVar[bool] = True

    @classmethod
    def for_maintain(cls, config: TopicConfig, options: MaintainOptions) -> Publication | None:
        return RegularPublication() if config.publish_formats else None

    def run(self, topic: MaintainedTopic, run_units: RunUnits) -> PublishReport:
        snapshot = topic.log.latest()
        names = chosen_formats(self.formats, snapshot.config)
        check_view(topic.name, snapshot)
        if shows_older_records(snapshot) and self.warns_each_time:
            warn_of_older_records(topic.name, snapshot.topic_id)
        attempt = _attempt(topic, run_units, names, snapshot)
        attempt.check()
        return attempt.report

    def preview(self, topic: MaintainedTopic) -> tuple[PublishReport, MaintainedTopic]:
        began = topic.runtime.monotonic()
        snapshot = topic.newest().snapshot
        formats = chosen_formats(self.formats, snapshot.config)
        due = tuple(DueTable(name, status_of(topic, snapshot, name)) for name in formats)
        seconds = topic.runtime.monotonic() - began
        return PublishReport(topic=topic.name, tables=(), seconds=seconds, due=due), topic


class RegularPublication(Publication):
    """As `maintain` does it: a warning comes only with a new table. In each night's mail it would
    soon be overlooked, and the report has the numbers."""

    warns_each_time: ClassVar[bool] = False


@dataclass(frozen=True)
class Attempt:
    """What a publication did, and why tables of other formats could not be published."""

    report: PublishReport
    failed: Mapping[str, Exception]

    def check(self) -> None:
        """Raise if a table could not be published. The others were."""
        names = [*self.failed]
        for name in names[1:]:
            _logger.warning("%s: %s", self.report.topic, named(name, self.failed[name]))
        if names:
            first = self.failed[names[0]]
            is_alone = len(names) + len(self.report.tables) == 1
            raise first if is_alone else named(names[0], first)


@dataclass(frozen=True)
class FollowingPublication:
    """The publication of a loop, which comes back every second. Formats that are `waiting` after a
    failure are left out. What fails is returned: the loop decides for each format when to try it
    again."""

    waiting: Collection[str] = ()

    name: ClassVar[str] = Publication.name

    def run(self, topic: MaintainedTopic, run_units: RunUnits) -> Attempt:
        snapshot = topic.log.latest()
        check_view(topic.name, snapshot)
        names = sorted({*snapshot.config.publish_formats} - {*self.waiting})
        return _attempt(topic, run_units, names, snapshot)


def named(name: str, error: Exception) -> Exception:
    """The same error, which says of which table it is. An error of a file of the topic stays as it
    is."""
    what = f"the {name} table was not published"
    if isinstance(error, CorruptTopicError):
        told: Exception = type(error)(error.path, error.rule, f"{what}: {error.detail}")
    elif isinstance(error, LogTableError) and error.args == (str(error),):
        told = type(error)(f"{what}: {error}")
    else:
        return error
    told.__dict__.update(error.__dict__ | told.__dict__)
    told.__cause__ = error
    return told


def chosen_formats(asked: Sequence[str] | None, config: TopicConfig) -> list[str]:
    """The formats to publish: those asked for, or those of the topic's settings, or Delta, the one
    that needs no other package."""
    if asked is None:
        return sorted(config.publish_formats or ("delta",))
    formats = names_in("formats", asked)
    unknown = [name for name in formats if name not in PUBLISH_FORMATS]
    if unknown or not formats:
        raise InvalidRequestError(
            f"a topic cannot be published as {', '.join(map(repr, unknown)) or 'nothing'}; "
            f"the formats are {', '.join(PUBLISH_FORMATS)}"
        )
    return list(dict.fromkeys(formats))


def unpublish(topic: MaintainedTopic, formats: Sequence[str] | None) -> int:
    """Remove the tables of these formats, or of all. Returns how many objects were removed."""
    chosen = PUBLISH_FORMATS if formats is None else formats
    wanted = chosen_formats(chosen, topic.log.latest().config)
    with tables_of(topic).opened(wanted) as opened:
        removed = sum(one.table.remove() for one in opened.values())
        for one in opened.values():
            one.published = one.shown = None
    return removed


def _attempt(
    topic: MaintainedTopic, run_units: RunUnits, names: Sequence[str], target: Snapshot
) -> Attempt:
    began = topic.runtime.monotonic()
    tables, failed = _publish_all(topic, run_units, names, target)
    seconds = topic.runtime.monotonic() - began
    return Attempt(PublishReport(topic=topic.name, tables=tables, seconds=seconds), failed)


def _publish_all(
    topic: MaintainedTopic, run_units: RunUnits, names: Sequence[str], target: Snapshot
) -> tuple[tuple[PublishedTable, ...], dict[str, Exception]]:
    """Show a version in tables of these formats, and return why tables have failed. The usual
    publication makes the sealed copies once for all of them, before any shows the version; then
    they do not wait for each other."""
    tables = tables_of(topic)
    failed: dict[str, Exception] = {}

    def caught(step: Callable[[Publisher], Result]) -> Callable[[Publisher], Result | None]:
        def attempt(one: Publisher) -> Result | None:
            try:
                return step(one)
            except Exception as error:
                failed[one.format] = error
                return None

        return attempt

    with tables.opened(names) as opened:
        files, looks = tables.files, KeyLooks(tables.files, tables.known)
        publishers = [Publisher(topic, run_units, files, one, looks) for one in opened.values()]
        look = caught(lambda one: one.look(target.topic_id))
        map_parallel(topic.store, look, publishers)
        going = [one for one in publishers if one.format not in failed]
        plans = [caught(lambda one: one.copies_ahead(target))(one) for one in going]
        ready = _seal_ahead(topic, tables.files, run_units, target, going, plans)
        going = [one for one in going if one.format not in failed]
        if ready is None:
            each = caught(lambda one: one.publish(topic.log.known))
            done = [each(one) for one in going]
        else:
            show = caught(lambda one: one.publish(ready.target))

            def step(one: Publisher | None) -> PublishedTable | None:
                """The tables do not wait for a commit that races with appends."""
                if one is not None:
                    return show(one)
                _commit_left(topic, ready.left)
                return None

            done = map_parallel(topic.store, step, [*going, None] if ready.left else going)
        for name in failed:
            del opened[name]
    shown = tuple(table for table in done if table is not None)
    return shown, {name: failed[name] for name in names if name in failed}


@dataclass(frozen=True)
class Ready:
    """A version that all tables can show at once, and the copies that are left to be committed."""

    target: Snapshot
    left: Sealed | None = None


def _seal_ahead(
    topic: MaintainedTopic,
    files: ObjectStore,
    run_units: RunUnits,
    target: Snapshot,
    publishers: Sequence[Publisher],
    plans: Sequence[list[MergeUnit] | None],
) -> Ready | None:
    """Make the sealed copies that tables need to show a version. The version to show is the one
    that has the copies in it, if their commit follows directly. None if a table does not get there
    in one step, or if tables need other copies of the same segments."""
    found = [plan for plan in plans if plan is not None]
    units = {tuple(s.path for s in unit.inputs): unit for plan in found for unit in plan}
    inputs = [path for paths in units for path in paths]
    if len(found) < len(plans) or len({*inputs}) < len(inputs):
        return None
    if not units:
        return Ready(target)
    try:
        sealed = write_copies(topic, files, run_units, list(units.values()))
    except SegmentGoneError:  # each table looks for a newer version to show
        return None
    publishers[0].count_sealed(sealed)
    after = commit(topic, sealed, tries=1)
    # A copy without the records below the log start says of its commit that records vanish.
    drops = any(unit.inputs[0].has_below(unit.log_start) for unit in units.values())
    if after is not None and after.version == target.version + 1 and not drops:
        return Ready(after)
    for publisher, plan in zip(publishers, found, strict=True):
        publisher.use(sealed, plan, target.version)
    return Ready(target, None if after is not None else sealed)


def _commit_left(topic: MaintainedTopic, sealed: Sealed | None) -> None:
    """Commit copies that the tables show already. They are right without [PUB-2]."""
    if sealed is None:
        return
    try:
        commit(topic, sealed, topic.store.limits.seal_tries - 1)
    except TopicNotFoundError:
        raise
    except LogTableError as error:
        _logger.warning("sealed copies of %s were not committed: %s", topic.name, error)
