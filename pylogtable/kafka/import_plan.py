"""Decides where an import from Kafka begins, and what stands against it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pylogtable.errors import CommitConflictError, InvalidRequestError
from pylogtable.format.config import NO_MEANING, TOPIC_CONFIG_KEYS, describe_config, normalize
from pylogtable.format.guard_rules import promoted_text, source_of
from pylogtable.format.model import CopyOf

_NO_EFFECT = {"file.delete.delay.ms": "vacuum deletes files, and its retention says when"}


@dataclass(frozen=True)
class Copy:
    """The topic that an import writes to. `imported_to` is the sum of the end offsets after the
    last commit of the import; None if there was none. `kafka_id` is the id that Kafka's topic had
    then, if it is known. `copy_of` is what the topic says of itself, and `app_ids` are those of the
    txns that it has."""

    name: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    imported_to: int | None
    is_kafka_shaped: bool
    kafka_id: str | None = None
    is_typed: bool = False
    copy_of: CopyOf | None = None
    app_ids: Sequence[str] = ()

    @property
    def is_empty(self) -> bool:
        """True if no partition has ever had a record."""
        return self.imported_to is None and all(
            self.ends[number] == start for number, start in self.starts.items()
        )


def check_shape(copy: Copy, *, typed: bool) -> None:
    """Raise if the topic does not have the columns of an import of bytes, or of a typed one."""
    if typed and copy.is_kafka_shaped:
        raise InvalidRequestError(
            f"topic {copy.name!r} has Kafka's bytes: it was imported without --value-format "
            "(value_format=). Leave that out to go on, or import the values as columns into a new "
            "topic: give another --name (name=)"
        )
    if not typed and copy.is_typed:
        raise InvalidRequestError(
            f"topic {copy.name!r} has the values of Kafka as columns: it was imported with "
            "--value-format (value_format=). Give that again to go on, or import the bytes into a "
            "new topic: give another --name (name=)"
        )
    if typed and not copy.is_typed:
        raise InvalidRequestError(
            f"topic {copy.name!r} has other columns than those of an import with --value-format. "
            "Import into a new topic: give another name"
        )


def check_source(copy: Copy, source: CopyOf) -> None:
    """Raise if the topic is a copy of something else than `source`, or is no copy any more
    [GUARD-3]."""
    known = copy.copy_of
    if known is None:
        return
    if known.app_id != source.app_id:
        raise InvalidRequestError(
            f"topic {copy.name!r} is a copy of {source_of(known)} (cluster {known.cluster}), and "
            f"not of {source_of(source)} (cluster {source.cluster}). Import into a new topic: give "
            "another name (--name)"
        )
    if known.ended is not None:
        raise InvalidRequestError(f"topic {copy.name!r}: {promoted_text(known)}")


def check_not_promoted(
    error: InvalidRequestError, name: str, copy_of: CopyOf | None, records: int
) -> None:
    """Raise the error of a running import with what it has brought, if its topic was promoted
    meanwhile."""
    if copy_of is not None and copy_of.ended is not None:
        raise InvalidRequestError(
            f"topic {name!r}: {error}. The {records:,} record(s) that this import has brought "
            "before stay"
        ) from error


def check_import(copy: Copy, partitions: int) -> None:
    """Raise if the topic is neither empty nor a copy that nobody else has written to. `partitions`
    is how many Kafka's topic has."""
    if not copy.is_kafka_shaped and not copy.is_typed:
        raise InvalidRequestError(
            f"topic {copy.name!r} has other columns than Kafka's key, value and headers. Import "
            "into a new topic: give another name"
        )
    have = len(copy.ends)
    if copy.imported_to is None:
        if not copy.is_empty:
            by = f" (app id {', '.join(map(repr, copy.app_ids))})" if copy.app_ids else ""
            raise InvalidRequestError(
                f"topic {copy.name!r} has records that no import of this topic of Kafka has "
                f"brought{by}. Import into a new topic: give another name (--name). If a Spark job "
                "has brought them (keepOffsets), go on with that job"
            )
        if have > partitions:
            raise InvalidRequestError(
                f"topic {copy.name!r} has {have} partition(s), and Kafka's has {partitions}. "
                "Delete it, and let the import create it"
            )
    if have > partitions:
        raise InvalidRequestError(
            f"topic {copy.name!r} has {have} partition(s), and Kafka's has only {partitions}: it "
            "was created again, or the copy was altered. Import into a new topic"
        )
    total = sum(copy.ends.values())
    if copy.imported_to is not None and copy.imported_to != total:
        raise CommitConflictError(
            f"another writer has appended to topic {copy.name!r} since the last import: its end "
            f"offsets add up to {total}, and to {copy.imported_to} after that import. Offsets of "
            "Kafka can no longer be kept there. Import into a new topic"
        )


def check_same_topic(name: str, before: str | None, now: str | None) -> None:
    """Raise if Kafka's topic has another id than before. An id that is not known is none."""
    if before is not None and now is not None and before != now:
        raise InvalidRequestError(
            f"Kafka's topic was deleted and created again: its id is {now}, and topic {name!r} was "
            f"imported from the one with the id {before}. Nothing was appended. Import into a new "
            "topic"
        )


def positions_to_begin(copy: Copy, starts: Mapping[int, int]) -> dict[int, int]:
    """Where an empty copy begins: where Kafka does, or where the caller says. Raises if the copy
    begins later: records would be left out."""
    for number, start in starts.items():
        end = copy.ends.get(number, 0)
        if end > start:
            raise InvalidRequestError(
                f"partition {number}: topic {copy.name!r} has no records and begins at offset "
                f"{end}, and the import would begin at {start}. It had other "
                "records, or another import has created it for a later time. Delete it, or import "
                "into a new topic"
            )
    return dict(starts)


def positions_to_resume(
    ends: Mapping[int, int], bounds: Mapping[int, tuple[int, int]], *, allow_gaps: bool
) -> dict[int, int]:
    """Where a copy with these ends continues. `bounds` are the first and the end offset of Kafka's
    partitions. Raises if Kafka has lost records in between, or has fewer than the copy."""
    positions: dict[int, int] = {}
    for number, (low, high) in sorted(bounds.items()):
        end = ends[number]
        if end > high:
            raise InvalidRequestError(
                f"partition {number}: the copy ends at offset {end}, and Kafka's topic ends at "
                f"{high}. It was created again, or has lost records. Import into a new topic"
            )
        if end < low and not allow_gaps:
            raise gap(number, end, low)
        positions[number] = max(end, low)
    return positions


def gap(partition: int, end: int, low: int) -> InvalidRequestError:
    """The error for records that Kafka has removed before they were imported."""
    return InvalidRequestError(
        f"partition {partition}: Kafka begins at offset {low}, and the copy ends at {end}. What "
        f"Kafka had at [{end}, {low}) was removed before it was imported. To go on without it, "
        "allow gaps"
    )


def settings_to_copy(kafka: Mapping[str, str]) -> dict[str, str]:
    """Those settings of Kafka's topic that mean the same here, and are not the default. Without a
    policy, a topic of Kafka keeps everything, and so does its copy."""
    defaults = describe_config({})
    if kafka.get("cleanup.policy") == "":
        kafka = {**kafka, "retention.ms": "-1", "retention.bytes": "-1"}
    return {
        name: kafka[name]
        for name in TOPIC_CONFIG_KEYS
        if kafka.get(name) not in (None, "", defaults[name])
    }


def settings_not_in_force(
    asked: Mapping[str, object], in_force: Mapping[str, str]
) -> dict[str, str]:
    """Those settings that an import was asked for, and that its topic does not have."""
    wanted = describe_config(normalize(asked))
    return {name: wanted[name] for name in asked if in_force.get(name) != wanted[name]}


def settings_left_out(chosen: Mapping[str, str]) -> dict[str, str]:
    """Why each of these settings, which somebody chose in Kafka, is not copied."""
    return {
        name: _NO_EFFECT.get(name) or NO_MEANING.get(name, "there is no such setting here")
        for name in sorted(chosen)
        if name not in TOPIC_CONFIG_KEYS
    }


def group_positions(
    committed: Mapping[int, int], starts: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, int]:
    """The positions of a Kafka group in the copy. Kafka counts the end of a transaction as an
    offset, and a group may be ahead of the copy: it continues at the end then."""
    return {
        number: min(max(offset, starts[number]), ends[number])
        for number, offset in sorted(committed.items())
        if number in ends and offset >= 0
    }
