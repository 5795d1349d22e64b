"""Which changes of a topic's columns are allowed when commits are replayed. Pure."""

from __future__ import annotations

from pylogtable.format.field_ids import Fault, numbered, uses_mapping
from pylogtable.format.model import COLUMN_MAPPING, Field, Protocol, TopicInfo
from pylogtable.format.schema import (
    HEADERS,
    is_keys_only,
    to_arrow,
    type_text,
    value_columns,
    widens,
)


def feature_fault(topic: TopicInfo, protocol: Protocol) -> Fault | None:
    """Renamed or dropped columns without the feature that tells readers and writers about them
    [META-7]."""
    if uses_mapping(topic) and not protocol.announces(COLUMN_MAPPING):
        detail = f"columns were renamed or dropped without the feature {COLUMN_MAPPING}"
        return Fault("META-7", detail)
    return None


def alteration_fault(
    old: TopicInfo, new: TopicInfo, *, has_records: bool, is_mirrored: bool = False
) -> Fault | None:
    """The rule that a change from `old` to `new` breaks; None if an alteration may make it
    [META-4], [META-6..8]. Columns are told apart by their ids. In a copy, one commit may make
    several alterations of the source: columns may have come and gone in between [MIR-5]."""
    if new.key != old.key or new.created_at_ms != old.created_at_ms:
        return Fault("META-4", "the key or the time of creation changes")
    before, after = numbered(old), numbered(new)
    by_id = {field.id: field for field in after.fields}
    values = value_columns(old)
    dropped = []
    for field in before.fields:
        kept = by_id.pop(field.id, None)
        if kept is None:
            if field.name not in values:
                return Fault("META-8", f"column {field.name!r} is dropped")
            dropped.append(field.stored_name)
            continue
        fault = _kept_fault(field, kept, is_value=field.name in values)
        if fault is not None:
            return fault
    retired, known = {*after.retired}, {*before.retired, *dropped}
    if not (known <= retired if is_mirrored else known == retired):
        detail = f"the retired names are {list(after.retired)}; dropped now: {dropped}"
        return Fault("META-8", detail)
    for added in by_id.values():
        assert added.id is not None
        assert before.last_field_id is not None
        if added.id <= before.last_field_id:
            return Fault("META-6", f"column {added.name!r} has the id {added.id} of another one")
        if not added.nullable:
            return Fault("META-4", f"column {added.name!r} is added and not nullable")
    if (after.last_field_id or 0) < (before.last_field_id or 0):
        return Fault("META-6", "last_field_id goes back")
    if has_records and is_keys_only(old) and not is_keys_only(new):
        return Fault("META-4", "a first value column turns all records into tombstones")
    return None


def _kept_fault(old: Field, new: Field, *, is_value: bool) -> Fault | None:
    if new.stored_name != old.stored_name:
        detail = f"column {old.name!r} is stored as {old.stored_name!r}, then {new.stored_name!r}"
        return Fault("META-7", detail)
    if new.name != old.name and (not is_value or new.name == HEADERS):
        return Fault("META-7", f"column {old.name!r} is renamed to {new.name!r}")
    is_same = to_arrow(new.type) == to_arrow(old.type)
    if new.nullable != old.nullable or not (is_same or (widens(old.type, new.type) and is_value)):
        before, after = type_text(old.type), type_text(new.type)
        detail = f"column {old.name!r} changes from {before} to {after}"
        return Fault("META-4", detail)
    return None
