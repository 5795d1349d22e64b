"""Plans to create, alter and delete a topic, and to delete its first records. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pylogtable.arguments import check_mapping, is_whole
from pylogtable.errors import InvalidRequestError, TopicExistsError
from pylogtable.format.config import LATEST, check_keys, normalize, parse_config
from pylogtable.format.field_ids import numbered, uses_mapping
from pylogtable.format.guard_rules import check_app_may_alter, check_app_may_append, with_guard
from pylogtable.format.mirror_rules import check_may_alter
from pylogtable.format.model import (
    COLUMN_MAPPING,
    COMBINED_APPENDS,
    FORMAT_VERSION,
    GIVEN_OFFSETS,
    INLINE_BATCHES,
    MAX_OFFSET,
    MAX_PARTITIONS,
    Change,
    CopyOf,
    Field,
    Protocol,
    TopicInfo,
)
from pylogtable.format.schema import check_fields, is_keys_only, value_columns
from pylogtable.format.snapshot import Snapshot
from pylogtable.topics.columns_plan import (
    ColumnChanges,
    alter_columns,
    check_drops,
    check_nested_names,
    check_new_names,
)


def new_topic_info(
    fields: Sequence[Field],
    key: Sequence[str],
    partitions: int,
    config: Mapping[str, object],
    now_ms: int,
    copy_of: CopyOf | None = None,
) -> TopicInfo:
    """The description of a topic to be created. Raises if an argument is not valid [META-1]."""
    check_fields(fields, key)
    names = [field.name for field in fields]
    check_new_names(names, names)
    check_nested_names(fields)
    _check_partition_count(partitions)
    settings = normalize(config)
    if parse_config(settings).is_compacted and not key:
        raise InvalidRequestError("a compacted topic needs a key: name its key column(s)")
    _check_view(settings, key)
    return numbered(
        TopicInfo(
            fields=tuple(fields),
            key=tuple(key),
            partitions=partitions,
            config=settings,
            created_at_ms=now_ms,
            copy_of=copy_of,
        )
    )


def plan_create(
    snapshot: Snapshot | None, topic: TopicInfo, url: str, start_offsets: Mapping[int, int]
) -> Change:
    """Create the topic. Raises if it already exists [META-2]. Partitions in `start_offsets` begin
    at these offsets [META-9]."""
    if snapshot is not None and snapshot.topic is not None:
        raise TopicExistsError(f"a topic already exists at {url}; open it with store.topic()")
    protocol = Protocol(format=FORMAT_VERSION)
    ends = {int(number): int(start) for number, start in sorted(start_offsets.items()) if start}
    if ends:
        protocol = protocol.with_feature(GIVEN_OFFSETS) or protocol
    if parse_config(topic.config).inline_max_bytes:
        protocol = protocol.with_feature(INLINE_BATCHES) or protocol
    if parse_config(topic.config).combined_appends:
        protocol = protocol.with_feature(COMBINED_APPENDS, readers_too=False) or protocol
    protocol = with_guard(protocol, topic)
    return Change(operation="create", protocol=protocol, topic=topic, ends=ends)


def check_start_offsets(start_offsets: Mapping[int, int], partitions: int) -> None:
    """Raise if these are not offsets at which partitions of a new topic can begin [META-9]."""
    check_mapping("start_offsets", start_offsets, "{0: 5000}, offsets by partition")
    for number, start in start_offsets.items():
        if not is_whole(number) or not 0 <= number < partitions:
            raise InvalidRequestError(
                f"start_offsets: there is no partition {number!r}; the topic has {partitions}, 0 "
                f"to {partitions - 1}"
            )
        if not is_whole(start) or not 0 <= start < MAX_OFFSET:
            raise InvalidRequestError(
                f"start_offsets: partition {number} cannot begin at {start!r}; give a whole number "
                f"from 0 to {MAX_OFFSET - 1}"
            )


def plan_delete_topic() -> Change:
    """Delete the topic [META-5]."""
    return Change(operation="delete_topic")


def plan_alter(
    snapshot: Snapshot,
    *,
    partitions: int | None,
    config: Mapping[str, object | None],
    columns: ColumnChanges,
    app_id: str | None = None,
) -> Change:
    """Add partitions, change settings, change columns [META-3], [META-4]. `app_id` is that of the
    import which alters its copy [GUARD-2]."""
    old = snapshot.info
    only_settings = partitions is None and not columns
    check_may_alter(snapshot.mirror, only_settings=only_settings)
    if not only_settings:
        check_app_may_alter(old, app_id)
    if partitions is not None:
        _check_partition_count(partitions)
        if partitions == old.partitions:
            raise InvalidRequestError(f"the topic already has {partitions} partition(s)")
        if partitions < old.partitions:
            raise InvalidRequestError(
                f"the topic currently has {old.partitions} partition(s); {partitions} would not "
                "be an increase"
            )
    check_mapping("config", config, "{'retention.ms': 3600000}")
    check_keys(config)
    unset = {key for key, value in config.items() if value is None}
    settings = {key: value for key, value in old.config.items() if key not in unset}
    settings.update(normalize({key: value for key, value in config.items() if value is not None}))
    new = alter_columns(
        msgspec.structs.replace(old, partitions=partitions or old.partitions, config=settings),
        columns,
    )
    check_fields(new.fields, new.key)
    _check_first_value_column(snapshot, new)
    if parse_config(settings).is_compacted and not old.key:
        raise InvalidRequestError("a topic without key columns cannot be compacted")
    _check_view(settings, old.key)
    check_drops(new)
    if new == old:
        raise InvalidRequestError(
            "nothing to alter: the topic already has these settings and columns"
        )
    return Change(operation="alter", protocol=_needed_protocol(snapshot, new), topic=new)


def plan_guard(
    snapshot: Snapshot, source: CopyOf, *, partitions: int | None = None
) -> Change | None:
    """Make the topic a guarded copy, and add partitions, for an import that takes it over
    [GUARD-1]. None if it is one already. Raises if it is a copy of something else."""
    old = snapshot.info
    grown = max(old.partitions, partitions or 0)
    check_app_may_append(old, source.app_id)
    new = msgspec.structs.replace(old, partitions=grown, copy_of=old.copy_of or source)
    if new == old:
        return None
    check_may_alter(snapshot.mirror, only_settings=False)
    protocol = with_guard(snapshot.protocol, new)
    return Change(
        operation="alter",
        protocol=None if protocol is snapshot.protocol else protocol,
        topic=new,
    )


def _check_view(settings: Mapping[str, str], key: Sequence[str]) -> None:
    if parse_config(settings).publish_view == LATEST and not key:
        raise InvalidRequestError(
            "publish.view=latest needs a key: without one, no record is the newest of its key"
        )


def _check_partition_count(partitions: int) -> None:
    if isinstance(partitions, bool) or not isinstance(partitions, int):
        raise InvalidRequestError(f"partitions must be a whole number, not {partitions!r}")
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise InvalidRequestError(f"a topic has 1 to {MAX_PARTITIONS} partitions, not {partitions}")


def _check_first_value_column(snapshot: Snapshot, new: TopicInfo) -> None:
    """Raise if the change adds the first value column to a topic with records: it would be null in
    them, which would make them tombstones [META-4]."""
    if not is_keys_only(snapshot.info) or is_keys_only(new):
        return
    written = sum(state.end for state in snapshot.partitions)
    if written:
        raise InvalidRequestError(
            f"column {value_columns(new)[0]!r} would be the first value column of a topic that has "
            f"only key columns ({', '.join(new.key)}): its {written} record(s) would become "
            "tombstones. Create a new topic with the value columns and copy the records there"
        )


def _needed_protocol(snapshot: Snapshot, new: TopicInfo) -> Protocol | None:
    """The protocol with the features that renamed and dropped columns [META-7] and combined appends
    [OFFER-1] need; None if it stays as it is. A topic that was created without combined appends
    gets them if somebody sets them: who does not know them may be using it."""
    needed = snapshot.protocol
    if uses_mapping(new):
        needed = needed.with_feature(COLUMN_MAPPING) or needed
    if "combined.appends" in new.config and parse_config(new.config).combined_appends:
        needed = needed.with_feature(COMBINED_APPENDS, readers_too=False) or needed
    return None if needed is snapshot.protocol else needed
