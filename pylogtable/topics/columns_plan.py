"""Plans changes of a topic's columns: drop, rename, widen, add. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from pylogtable.errors import InvalidRequestError
from pylogtable.format.config import LATEST
from pylogtable.format.field_ids import field_fault, numbered, with_ids
from pylogtable.format.model import Field, TopicInfo
from pylogtable.format.schema import (
    HEADERS,
    RESERVED,
    WireType,
    column_hint,
    renamed_to,
    struct_names,
    type_text,
    value_columns,
    widens,
)


@dataclass(frozen=True)
class ColumnChanges:
    """What an alteration does to columns. `drop`, `rename` and `widen` name columns as they are
    before it. Then the columns of `add` are added at the end."""

    drop: Sequence[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    widen: Mapping[str, WireType] = field(default_factory=dict)
    add: Sequence[Field] = ()

    def __bool__(self) -> bool:
        return bool(self.drop or self.rename or self.widen or self.add)


def alter_columns(topic: TopicInfo, changes: ColumnChanges) -> TopicInfo:
    """The topic with changed columns [META-4], [META-7], [META-8]. Raises if that is not allowed.

    A topic of an older version gets its ids here [META-6]."""
    if not (changes.drop or changes.rename or changes.widen or changes.add):
        return topic
    _check_names(topic, changes)
    topic = numbered(topic)
    fields: list[Field] = []
    retired = list(topic.retired)
    for existing in topic.fields:
        if existing.name in changes.drop:
            retired.append(existing.stored_name)
            continue
        kept = _widened(existing, topic.key, changes.widen.get(existing.name))
        fields.append(_renamed(kept, changes.rename.get(existing.name)))
    stored_names = {field.stored_name for field in fields}
    last_id = topic.last_field_id
    assert last_id is not None
    for added in changes.add:
        if not added.nullable:
            raise InvalidRequestError(
                f"column {added.name!r} must be nullable: older records have no value for it"
            )
        (new,), last_id = with_ids([added], last_id)
        new = _stored_apart(new, stored_names, {*retired, *_stored_as(fields)})
        stored_names.add(new.stored_name)
        fields.append(new)
    names = [field.name for field in fields]
    _check_unique(names)
    new_names = [*changes.rename.values(), *(added.name for added in changes.add)]
    check_new_names(new_names, names)
    check_nested_names(changes.add)
    altered = msgspec.structs.replace(
        topic, fields=tuple(fields), last_field_id=last_id, retired=tuple(retired)
    )
    if changes.drop and not value_columns(altered):
        raise InvalidRequestError(
            f"column(s) {', '.join(changes.drop)} cannot be dropped: no value column would be "
            "left. Add a column first, or delete the topic"
        )
    return altered


def check_new_names(new: Iterable[str], names: Sequence[str]) -> None:
    """Raise if one of the new names among `names` is empty: no query could name the column
    [TYPE-3]. Raise if it differs only in case from another one or from a name with a meaning of its
    own: Spark could not query the topic [TYPE-5]. Names that the topic has already may stay."""
    alike: dict[str, list[str]] = {}
    for name in dict.fromkeys((HEADERS, *RESERVED, *names)):
        alike.setdefault(name.lower(), []).append(name)
    for name in new:
        if not name:
            raise InvalidRequestError("a column name is empty: give every column a name")
        others = [other for other in alike[name.lower()] if other != name]
        if others:
            raise InvalidRequestError(
                f"column {name!r} differs only in case from {others[0]!r}, so Spark could query "
                f"neither. Give it another name. Names with a meaning of their own are "
                f"{', '.join((HEADERS, *RESERVED))}"
            )


def check_nested_names(fields: Iterable[Field]) -> None:
    """Raise if fields of a struct inside of one of these columns differ only in case [TYPE-5]."""
    for column in fields:
        for names in struct_names(column.type):
            alike = {name.lower(): name for name in names}
            for name in names:
                if alike[name.lower()] != name:
                    raise InvalidRequestError(
                        f"column {column.name!r} has a struct with the fields {name!r} and "
                        f"{alike[name.lower()]!r}, which differ only in case, so Spark could query "
                        "neither. Give one of them another name"
                    )


def check_drops(topic: TopicInfo) -> None:
    """Raise if dropped columns may have turned records into tombstones, which a compaction would
    remove, and a table of the newest records would not show [META-8], [PUB-9]. Other faults cannot
    come from an alteration."""
    if topic.config.get("publish.view") == LATEST:
        as_compacted = {**topic.config, "cleanup.policy": "compact"}
        topic = msgspec.structs.replace(topic, config=as_compacted)
    fault = field_fault(topic)
    if fault is not None:
        raise InvalidRequestError(
            f"nothing was changed, because afterwards {fault.detail} [{fault.rule}]. Create a new "
            "topic and copy the records there"
        )


def _check_names(topic: TopicInfo, changes: ColumnChanges) -> None:
    names = [field.name for field in topic.fields]
    for name in changes.widen:
        if name not in names:
            raise InvalidRequestError(
                f"there is no column {name!r} to widen; {column_hint(topic.fields, name, names)}"
            )
    for name in changes.drop:
        _check_value_column(topic, name, "drop")
        if name in changes.rename or name in changes.widen:
            raise InvalidRequestError(f"column {name!r} is dropped and changed in one call")
    if len(set(changes.drop)) != len(changes.drop):
        raise InvalidRequestError(f"a column is dropped twice: {', '.join(changes.drop)}")
    for name, new_name in changes.rename.items():
        _check_value_column(topic, name, "rename")
        if new_name == name:
            raise InvalidRequestError(f"column {name!r} already has this name")
        if new_name in (HEADERS, *RESERVED):
            raise InvalidRequestError(
                f"column {name!r} cannot be renamed to {new_name!r}, which has a meaning of its "
                f"own. Such names are {', '.join((HEADERS, *RESERVED))}"
            )


def _check_value_column(topic: TopicInfo, name: str, verb: str) -> None:
    values = value_columns(topic)
    if name in values:
        return
    renamed = renamed_to(topic.fields, name)
    why = f"there is no such column. Columns to {verb}: {', '.join(values) or 'none'}"
    if renamed is not None:
        why = f"it was renamed to {renamed!r}"
    if name in topic.key:
        why = "it belongs to the key, which decides where records are. Create a new topic instead"
    elif name in (HEADERS, *RESERVED):
        why = "it has a meaning of its own"
    raise InvalidRequestError(f"cannot {verb} column {name!r}: {why}")


def _check_unique(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidRequestError(f"the topic already has a column {name!r}")
        seen.add(name)


def _widened(column: Field, key: Sequence[str], wire: WireType | None) -> Field:
    if wire is None:
        return column
    if column.name in key:
        raise InvalidRequestError(
            f"key column {column.name!r} cannot be widened: records would change their partition"
        )
    if not widens(column.type, wire):
        raise InvalidRequestError(
            f"column {column.name!r} cannot be widened from {type_text(column.type)} to "
            f"{type_text(wire)}: some values would not fit"
        )
    return msgspec.structs.replace(column, type=wire)


def _renamed(column: Field, new_name: str | None) -> Field:
    if new_name is None:
        return column
    stored = column.stored_name
    return msgspec.structs.replace(
        column, name=new_name, stored_as=None if stored == new_name else stored
    )


def _stored_as(fields: Iterable[Field]) -> set[str]:
    return {field.stored_as for field in fields if field.stored_as is not None}


def _stored_apart(column: Field, taken: set[str], old_names: set[str]) -> Field:
    """The new column, with another stored name if its own is in use or was in use [META-8]. Old
    names that differ only in case are avoided too: Spark cannot tell them apart in a file."""
    folded = {name.casefold() for name in old_names}
    stored = column.name
    while stored in taken or stored.casefold() in folded:
        stored = f"{stored}-{column.id}"
    if stored == column.name:
        return column
    return msgspec.structs.replace(column, stored_as=stored)
