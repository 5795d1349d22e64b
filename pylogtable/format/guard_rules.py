"""Guarded copies: topics whose records come from another system, such as Kafka. Pure.

The topic object says of what it is a copy, and under which app id its records come. As long as that
holds, nobody else appends, and nobody else adds partitions or columns: one stray record would take
an offset that belongs to a record of the source.
"""

from __future__ import annotations

import msgspec

from pylogtable.errors import InvalidRequestError
from pylogtable.format.model import GUARDED_COPY, CopyOf, Protocol, TopicInfo

#: What systems are called that topics are copies of.
_NAMES = {"kafka": "Kafka"}
_WAY_OUT = (
    "To make it a topic of its own, after the cut-over for instance, call topic.promote() "
    "(pylogtable topics promote)"
)


def guard_of(topic: TopicInfo) -> CopyOf | None:
    """Of what the topic is a copy, as long as it is one [GUARD-1]."""
    source = topic.copy_of
    return source if source is not None and source.ended is None else None


def check_app_may_append(topic: TopicInfo, app_id: str | None) -> None:
    """Raise if appends of this app id are not those of the source [GUARD-2], or are those of a
    source that this topic is no copy of any more [GUARD-3]. `app_id` is None for an append without
    a txn."""
    guard, source = guard_of(topic), topic.copy_of
    if guard is None and source is not None and app_id == source.app_id:
        raise InvalidRequestError(promoted_text(source))
    if guard is not None and app_id != guard.app_id:
        raise InvalidRequestError(
            f"append is refused: this topic is a copy of {source_of(guard)}. Only its import "
            "appends to it, since any other record would take the offset of one of its source. "
            f"{_WAY_OUT}"
        )


def check_app_may_alter(topic: TopicInfo, app_id: str | None) -> None:
    """Raise if only the source decides about partitions and columns [GUARD-2]."""
    guard = guard_of(topic)
    if guard is not None and app_id != guard.app_id:
        raise InvalidRequestError(
            f"alter is refused: this topic is a copy of {source_of(guard)}. Its import brings "
            f"partitions and columns. Its settings may be changed. {_WAY_OUT}"
        )


def source_name(kind: str, name: str, address: str) -> str:
    """What a topic is a copy of, for people.

    >>> source_name("kafka", "orders", "broker:9092")
    "Kafka's topic 'orders' at broker:9092"
    """
    return f"{_NAMES.get(kind, kind)}'s topic {name!r}" + (f" at {address}" if address else "")


def source_of(source: CopyOf) -> str:
    """The same, of the topic object."""
    return source_name(source.kind, source.name, source.address)


def promoted_text(source: CopyOf) -> str:
    """Why nothing more is imported, for people."""
    return (
        f"this topic was a copy of {source_of(source)}, and was promoted in version "
        f"{source.ended}: it is a topic of its own since, and its offsets are no longer those of "
        "its source. To import into a new topic, give another name (--name)"
    )


def with_guard(protocol: Protocol, topic: TopicInfo) -> Protocol:
    """The protocol that this topic needs, if it is a copy [GUARD-1]."""
    if topic.copy_of is None:
        return protocol
    return protocol.with_feature(GUARDED_COPY, readers_too=False) or protocol


def ended_guard(topic: TopicInfo, version: int) -> TopicInfo:
    """The topic without its guard, from this version on [GUARD-3]."""
    assert topic.copy_of is not None
    ended = msgspec.structs.replace(topic.copy_of, ended=version)
    return msgspec.structs.replace(topic, copy_of=ended)
