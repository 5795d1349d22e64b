"""Where the export of a promoted copy to its own source begins: behind what came from there."""

from __future__ import annotations

import warnings

from pylogtable.errors import InvalidRequestError
from pylogtable.topic import Topic


def begin_back_to_source(topic: Topic, group: str, cluster: str, kafka_topic: str) -> None:
    """Let a new group begin where the topic was promoted, if it would be sent to the topic of Kafka
    that it was a copy of: that has all records before. Raises if it is still a copy, since the
    import would bring its records again, without end."""
    source = topic.describe().copy_of
    if source is None or (source.cluster, source.name) != (cluster, kafka_topic):
        return
    if source.ended is None:
        raise InvalidRequestError(
            f"topic {topic.name!r} is a {source}. Its records are in that topic already: to send "
            "them there would append all of them again. Give another topic of Kafka (--name), or "
            "promote it first"
        )
    if topic.group(group).positions():
        return
    ends = _ends_at_promotion(topic, source.ended, group)
    topic.group(group).commit(ends)
    told = ", ".join(f"{number}: {end}" for number, end in ends.items())
    warnings.warn(
        f"topic {topic.name!r} was a copy of the topic of Kafka to which it is sent now. What came "
        f"from there is not sent again: group {group!r} begins where the topic was promoted, at "
        f"the offsets {told}",
        stacklevel=3,
    )


def _ends_at_promotion(topic: Topic, ended: int, group: str) -> dict[int, int]:
    """The ends that the topic had when it was promoted. Raises if they cannot be known: the version
    may be gone, and `ended` of a mirror is a version of another topic [GUARD-4]."""
    try:
        view = topic.at(ended)
        commits = view.history(1).select(["version", "operation"]).to_pylist()
    except InvalidRequestError as error:
        raise _unknown(topic, ended, group) from error
    mirror = view.snapshot.mirror
    is_own = commits == [{"version": ended, "operation": "promote"}]
    if not is_own or (mirror is not None and mirror.ended == ended):
        raise _unknown(topic, ended, group)
    return view.end_offsets


def _unknown(topic: Topic, ended: int, group: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"topic {topic.name!r} was a copy of the topic of Kafka to which it would be sent, and was "
        f"promoted in version {ended}. That version cannot be read here any more: nobody "
        "can tell which records came from there. Nothing was sent: they would be there twice. Set "
        f"the position of group {group!r} first (pylogtable groups reset), or give another topic "
        "of Kafka (--name)"
    )
