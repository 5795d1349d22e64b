"""Builds and parses every object name of the format. No other module does.

A path in a manifest may have been tampered with. The checks here raise `CorruptTopicError` if a
path does not have the expected form or leads out of the topic [PATH-4].
"""

from __future__ import annotations

import re

from pylogtable.errors import CorruptTopicError, InvalidRequestError

MANIFEST_DIR = "_manifest/"
HINT_PATH = "_manifest/_head.json"
OFFERS_DIR = "_manifest/offers/"
GROUPS_DIR = "_groups/"

_DIGITS = 20
_COMMIT = re.compile(r"_manifest/([0-9]{20})\.json")
_ROOT = re.compile(r"_manifest/([0-9]{20})\.root\.json")
_LEAF_ID = re.compile(r"[0-9a-z]{1,64}")
_LEAF = re.compile(r"_manifest/leaf-([0-9a-z]{1,64})\.parquet")
#: Also for whole columns of paths.
SEGMENT_PATTERN = (
    r"^partition=(?P<partition>0|[1-9][0-9]{0,8})/(?P<floor>[0-9]{20})-[0-9a-z]{1,64}\.parquet$"
)
_SEGMENT = re.compile(SEGMENT_PATTERN)
#: The path of records in a commit: the commit, and the number of the first of them [INL-1].
INLINE_PATTERN = r"^_manifest/[0-9]{20}\.json@(0|[1-9][0-9]{0,8})$"
_INLINE = re.compile(r"(_manifest/([0-9]{20})\.json)@(0|[1-9][0-9]{0,8})")
_OFFER_NAME = re.compile(r"([0-9]{20})-[0-9a-z]{1,64}")
_GROUP = re.compile(r"_groups/([a-zA-Z0-9._-]{1,249})/([0-9]{20})\.json")
_GROUP_OFFER = re.compile(r"_groups/([a-zA-Z0-9._-]{1,249})/offers/([0-9]{20}-[a-zA-Z0-9/_-]+)")
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def commit_path(version: int) -> str:
    return f"{MANIFEST_DIR}{version:0{_DIGITS}d}.json"


def root_path(version: int) -> str:
    return f"{MANIFEST_DIR}{version:0{_DIGITS}d}.root.json"


def leaf_path(leaf_id: str) -> str:
    return f"{MANIFEST_DIR}leaf-{leaf_id}.parquet"


def segment_path(partition: int, floor_offset: int, file_id: str) -> str:
    return f"partition={partition}/{floor_offset:0{_DIGITS}d}-{file_id}.parquet"


def offer_name(seen: int, offer_id: str) -> str:
    """The name of an offer: older ones come first in a listing [OFFER-2]."""
    return f"{seen:0{_DIGITS}d}-{offer_id}"


def offer_path(name: str) -> str:
    return f"{OFFERS_DIR}{name}.json"


def group_prefix(group: str) -> str:
    return f"{GROUPS_DIR}{group}/"


def group_path(group: str, number: int) -> str:
    return f"{GROUPS_DIR}{group}/{number:0{_DIGITS}d}.json"


def group_offer_path(group: str, name: str) -> str:
    return f"{GROUPS_DIR}{group}/offers/{name}"


def parse_commit_path(path: str) -> int | None:
    """The version in the path of a commit; None for any other path."""
    match = _COMMIT.fullmatch(path)
    return int(match[1]) if match else None


def parse_root_path(path: str) -> int | None:
    """The version in the path of a root; None for any other path."""
    match = _ROOT.fullmatch(path)
    return int(match[1]) if match else None


def parse_leaf_path(path: str) -> str | None:
    """The id in the path of a leaf; None for any other path."""
    match = _LEAF.fullmatch(path)
    return match[1] if match else None


def parse_offer_path(path: str) -> str | None:
    """The name in the path of an offer; None for any other path."""
    name = path.removeprefix(OFFERS_DIR).removesuffix(".json")
    return name if path == offer_path(name) and _OFFER_NAME.fullmatch(name) else None


def seen_in(name: str) -> int | None:
    """The version in the name of an offer; None if that is no such name [OFFER-2]."""
    match = _OFFER_NAME.fullmatch(name)
    return int(match[1]) if match else None


def parse_group_path(path: str) -> tuple[str, int] | None:
    """The group and the number in the path of a group's state; None for any other path."""
    match = _GROUP.fullmatch(path)
    if not match or match[1] in {".", ".."}:
        return None
    return match[1], int(match[2])


def parse_group_offer_path(path: str) -> tuple[str, str] | None:
    """The group and the name of an offer; None for any other path."""
    match = _GROUP_OFFER.fullmatch(path)
    return (match[1], match[2]) if match else None


def is_segment_path(path: str) -> bool:
    """True if this is the path of a segment."""
    return _SEGMENT.fullmatch(path) is not None


def parse_inline_path(path: str) -> tuple[int, int] | None:
    """Version and first row in the path of an inline segment; None for any other path [INL-1]."""
    match = _INLINE.fullmatch(path)
    return (int(match[2]), int(match[3])) if match else None


def object_of(path: str) -> str:
    """The object that has the records of a segment: its file, or its commit [INL-1]."""
    return path.partition("@")[0]


def check_leaf_id(leaf_id: str, *, source: str) -> None:
    """Raise if the object `source` names a leaf id that is not valid [PATH-4]."""
    if not _LEAF_ID.fullmatch(leaf_id):
        raise CorruptTopicError(source, "PATH-4", f"{leaf_id!r} is not a valid leaf id")


def floor_of(path: str) -> int:
    """The floor offset in the path of a segment, which must be valid."""
    begin = path.index("/") + 1
    return int(path[begin : begin + _DIGITS])


def check_segment_path(path: str, partition: int, *, source: str) -> int:
    """The floor offset in a segment's path, 0 for records in a commit [INL-1]. Raises if it is
    neither that nor a file in `partition` [PATH-3]."""
    if _INLINE.fullmatch(path):
        return 0
    match = _SEGMENT.fullmatch(path)
    if not match or int(match[1]) != partition:
        raise CorruptTopicError(
            source, "PATH-4", f"segment path {path!r} is not a file of partition {partition}"
        )
    return int(match[2])


def check_topic_name(name: str) -> None:
    """Raise if this is not a valid topic name. The rule is Kafka's [PATH-1]."""
    _check_name("topic", name)


def check_group_name(name: str) -> None:
    """Raise if this is not a valid group name. The rule is the same as for topics [GRP-1]."""
    _check_name("group", name)


def check_member_name(name: str) -> None:
    """Raise if this is not a valid member name. The rule is the same as for topics."""
    _check_name("member", name)


def _check_name(what: str, name: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in {".", ".."}:
        raise InvalidRequestError(
            f"{what} name {name!r} is not allowed: 1 to 249 characters of a-z, A-Z, 0-9, '.', '_' "
            "and '-', and neither '.' nor '..'"
        )


def collide(one: str, other: str) -> bool:
    """True if two names differ only in `.` and `_`, which Kafka's metrics confuse [PATH-2]."""
    return one != other and one.replace(".", "_") == other.replace(".", "_")
