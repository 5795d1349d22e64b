"""What all table formats ask of a topic's columns. Pure."""

from __future__ import annotations

from pylogtable.errors import InvalidRequestError
from pylogtable.format.model import TopicInfo
from pylogtable.format.schema import LOG_FIELDS


def check_names(topic: TopicInfo, table: str) -> None:
    """Raise if two columns differ only in case: the engines could not tell them apart."""
    seen: dict[str, str] = {}
    for name in (*(field.name for field in LOG_FIELDS), *(field.name for field in topic.fields)):
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise InvalidRequestError(
                f"the topic cannot be published as {table}: columns {other!r} and {name!r} "
                f"differ only in case. Rename one: topic.alter(rename_columns={{{name!r}: ...}})"
            )


def guid(topic_id: str) -> str:
    """The id of a topic in the usual form of a UUID, if it has 32 digits."""
    if len(topic_id) != 32:
        return topic_id
    return "-".join((topic_id[:8], topic_id[8:12], topic_id[12:16], topic_id[16:20], topic_id[20:]))
