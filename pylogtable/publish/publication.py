"""Publication: show the topic to engines that read other table formats, over its own files.

It plans on a snapshot, as every job does. The table then shows exactly that version, whatever other
writers, jobs and publications do meanwhile [PUB-1].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pylogtable.arguments import names_in
from pylogtable.errors import InvalidRequestError
from pylogtable.format.config import PUBLISH_FORMATS, TopicConfig
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.job import MaintainedTopic, MaintainOptions
from pylogtable.jobs.work import RunUnits
from pylogtable.publish.latest_view import check_view
from pylogtable.publish.older_records import shows_older_records, warn_of_older_records
from pylogtable.publish.publisher import Publisher
from pylogtable.publish.report import DueTable, PublishedTable, PublishReport
from pylogtable.publish.sealing import seal
from pylogtable.publish.status import status_of
from pylogtable.publish.tables import check_installed, tables_of
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.threads import map_parallel


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
        began = topic.runtime.monotonic()
        snapshot = topic.log.latest()
        names = chosen_formats(self.formats, snapshot.config)
        check_installed(names)
        check_view(topic.name, snapshot)
        if shows_older_records(snapshot) and self.warns_each_time:
            warn_of_older_records(topic.name, snapshot.topic_id)
        tables = _publish_all(topic, run_units, names, snapshot)
        seconds = topic.runtime.monotonic() - began
        return PublishReport(topic=topic.name, tables=tables, seconds=seconds)

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
        removed = sum(one.table.remove() for one in opened)
        for one in opened:
            one.published = one.shown = None
    return removed


def _publish_all(
    topic: MaintainedTopic, run_units: RunUnits, names: Sequence[str], target: Snapshot
) -> tuple[PublishedTable, ...]:
    """Show a version in tables of these formats. The usual publication makes the sealed copies once
    for all of them, before any shows the version; then they do not wait for each other."""
    tables = tables_of(topic)
    with tables.opened(names) as opened:
        publishers = [Publisher(topic, run_units, tables.files, table) for table in opened]
        map_parallel(topic.store, lambda publisher: publisher.look(target.topic_id), publishers)
        ready = _seal_ahead(topic, tables.files, run_units, target, publishers)
        if ready is None:
            return tuple(publisher.publish(topic.log.known) for publisher in publishers)
        return tuple(map_parallel(topic.store, lambda one: one.publish(ready), publishers))


def _seal_ahead(
    topic: MaintainedTopic,
    files: ObjectStore,
    run_units: RunUnits,
    target: Snapshot,
    publishers: Sequence[Publisher],
) -> Snapshot | None:
    """Make the sealed copies that tables need to show a version. Returns the version to show: the
    one that has the copies in it, if that follows directly. None if a table does not get there in
    one step, or if tables need other copies of the same segments."""
    plans = [publisher.copies_ahead(target) for publisher in publishers]
    found = [plan for plan in plans if plan is not None]
    units = {tuple(s.path for s in unit.inputs): unit for plan in found for unit in plan}
    inputs = [path for paths in units for path in paths]
    if len(found) < len(plans) or len({*inputs}) < len(inputs):
        return None
    if not units:
        return target
    sealed = seal(topic, files, run_units, list(units.values()))
    publishers[0].count_sealed(sealed)
    # A copy without the records below the log start says of its commit that records vanish.
    drops = any(unit.inputs[0].has_below(unit.log_start) for unit in units.values())
    if sealed.after is not None and sealed.after.version == target.version + 1 and not drops:
        return sealed.after
    for publisher, plan in zip(publishers, found, strict=True):
        publisher.use(sealed, plan, target.version)
    return target
