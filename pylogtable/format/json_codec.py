"""Encoding and decoding of the objects in the manifest and in consumer groups.

If an object cannot be decoded, the error names its path and the rule it breaks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from pylogtable.errors import CorruptTopicError, InvalidRequestError, UnsupportedFormatError
from pylogtable.format import json_bytes
from pylogtable.format.config import compacts
from pylogtable.format.field_ids import field_fault
from pylogtable.format.group_model import GroupState
from pylogtable.format.json_bytes import UndecodableError
from pylogtable.format.model import (
    FORMAT_VERSION,
    MAX_APP_ID_BYTES,
    MAX_NOTE_BYTES,
    MAX_NOTE_NESTING,
    READER_FEATURES,
    WRITER_FEATURES,
    Commit,
    Hint,
    Protocol,
    Root,
    StoredObject,
    TopicInfo,
)
from pylogtable.format.paths import check_leaf_id, commit_path, group_path, root_path
from pylogtable.format.schema import check_fields, to_arrow
from pylogtable.format.segment_checks import check_entry

Decoded = TypeVar("Decoded")
Versioned = TypeVar("Versioned", Commit, Root)


class _JustProtocol(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    protocol: Protocol | None = None


_commits = msgspec.json.Decoder(Commit)
_roots = msgspec.json.Decoder(Root)
_groups = msgspec.json.Decoder(GroupState)
_hints = msgspec.json.Decoder(Hint)
_protocols = msgspec.json.Decoder(_JustProtocol)


def encode(stored: Commit | Root | Hint | GroupState) -> bytes:
    """Encode an object as JSON. Fields with their default value are left out. All but the hint get
    a checksum [SUM-1]."""
    is_hint = isinstance(stored, Hint)
    return json_bytes.encode(stored) if is_hint else json_bytes.encode_summed(stored)


def decode_commit(data: bytes, version: int) -> Commit:
    """The commit of `version`. The version in its body must be the one in its name [COMMIT-2]."""
    path = commit_path(version)
    commit = _decode_version(_commits, data, version, path, ("COMMIT-1", "COMMIT-2"))
    for segment in commit.add:
        check_entry(segment, segment.partition, source=path)
    if commit.rows is not None and not json_bytes.has_sum(data):
        raise CorruptTopicError(path, "INL-4", "it has rows and no checksum")
    return commit


def decode_root(data: bytes, version: int) -> Root:
    """The root of `version`; every path and leaf id in it is checked [ROOT-1]."""
    path = root_path(version)
    root = _decode_version(_roots, data, version, path, ("ROOT-1", "ROOT-1"))
    for leaf in root.leaves:
        check_leaf_id(leaf.id, source=path)
    for number, partition in enumerate(root.partitions):
        for segment in partition.tail:
            check_entry(segment, number, source=path)
        if any(not 0 <= run.leaf < len(root.leaves) for run in partition.runs):
            raise CorruptTopicError(path, "ROOT-3", f"partition {number} names a missing leaf")
    return root


def decode_group(data: bytes, group: str, number: int) -> GroupState:
    """A state of a consumer group. The number in its body must be the one in its name [GRP-2], and
    no partition may have two owners [GRP-12]."""
    path = group_path(group, number)
    try:
        state = _decode(_groups, data, path, "GRP-2")
        _check_sum(data, path)
        if state.number != number:
            raise CorruptTopicError(path, "GRP-2", f"the body says number {state.number}")
        owned = [partition for member in state.members.values() for partition in member.owned]
        if len(owned) != len(set(owned)):
            raise CorruptTopicError(path, "GRP-12", "a partition has two owners")
    except CorruptTopicError as error:
        way_out = "remove this object to go back to the state of the group before it"
        raise CorruptTopicError(path, error.rule, f"{error.detail}; {way_out}") from None
    return state


def decode_hint(data: bytes) -> Hint | None:
    """The hint, or None if it cannot be decoded: a hint may be ignored [HINT-1]."""
    try:
        return json_bytes.decode(_hints, data)
    except UndecodableError:
        return None


def decode_own(decode: Callable[..., Decoded], data: bytes, *name: str | int) -> Decoded:
    """Decode an object that is about to be put, because a broken one could never be removed. Here
    a fault is the caller's: a value that the format does not allow."""
    try:
        return decode(data, *name)
    except CorruptTopicError as error:
        raise InvalidRequestError(
            f"nothing was committed, since no reader could read it [{error.rule}]: {error.detail}"
        ) from None


def check_app_id(app_id: str) -> None:
    """Raise if a txn cannot have this app id [TXN-5]."""
    _check_short_text("the app id of a txn", app_id)


def check_origin(origin: object) -> None:
    """Raise if a txn cannot have this origin [TXN-5]."""
    _check_short_text("the origin of a txn", origin)


def stored_note(note: object) -> Any:
    """The note of a txn as it is stored, a copy. Raises if it is not a JSON value: it would come
    back as another one, or not at all [TXN-7]."""
    refused = "the note of a txn must be a JSON value: dicts with texts as names, lists, texts, "
    refused += "numbers, True, False and None"
    try:
        data = msgspec.json.encode(note)
        is_deep = json_bytes.is_nested_deeper(MAX_NOTE_NESTING, data)
        copy = None if is_deep else msgspec.json.decode(data)
    except RecursionError:
        is_deep, data, copy = True, b"", None
    except (msgspec.MsgspecError, OverflowError, TypeError, ValueError) as error:
        raise InvalidRequestError(f"{refused}, not {note!r:.80}: {error}") from None
    if len(data) > MAX_NOTE_BYTES:
        raise InvalidRequestError(
            f"the note of a txn may have {MAX_NOTE_BYTES:,} bytes as JSON, and {note!r:.40}... has "
            f"{len(data):,}. Keep in it only what the next run has to know"
        )
    if is_deep:
        raise InvalidRequestError(
            f"the note of a txn may be nested {MAX_NOTE_NESTING} levels deep, and this one, a "
            f"{type(note).__name__}, is deeper"
        )
    if copy != note:
        raise InvalidRequestError(
            f"{refused}, not {note!r:.80}: it would come back as {copy!r:.80}"
        )
    return copy


def check_readable(protocol: Protocol) -> None:
    """Raise if this version of the library cannot read the topic [PROTO-2]."""
    _refuse_unknown(protocol, protocol.reader_features, READER_FEATURES, "read")


def check_writable(protocol: Protocol) -> None:
    """Raise if this version of the library cannot write to the topic [PROTO-3]."""
    _refuse_unknown(protocol, protocol.writer_features, WRITER_FEATURES, "written")


def _refuse_unknown(
    protocol: Protocol, named: tuple[str, ...], known: frozenset[str], verb: str
) -> None:
    if protocol.format != FORMAT_VERSION:
        raise UnsupportedFormatError(
            f"the topic has format version {protocol.format}; this pylogtable knows "
            f"{FORMAT_VERSION}. Upgrade pylogtable."
        )
    unknown = sorted(set(named) - known)
    if unknown:
        raise UnsupportedFormatError(
            f"the topic cannot be {verb} by this pylogtable: it needs the "
            f"feature(s) {', '.join(unknown)}. Upgrade pylogtable."
        )


def _check_short_text(what: str, text: object) -> None:
    if not isinstance(text, str):
        raise InvalidRequestError(f"{what} must be a text, not {text!r}")
    if not text:
        raise InvalidRequestError(f"{what} is empty; leave it out, or name the run that counts")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidRequestError(f"{what} is not valid Unicode: {text[:60]!r}") from None
    if size > MAX_APP_ID_BYTES:
        raise InvalidRequestError(
            f"{what} may have {MAX_APP_ID_BYTES:,} bytes, and {text[:40]!r}... has {size:,}"
        )


def _decode_version(
    decoder: msgspec.json.Decoder[Versioned],
    data: bytes,
    version: int,
    path: str,
    rules: tuple[str, str],
) -> Versioned:
    """The commit or root of `version`. It breaks the first rule if it does not decode, and the
    second if its body says another version."""
    found = _decode(decoder, data, path, rules[0])
    if found.protocol is not None:
        check_readable(found.protocol)
    _check_sum(data, path)
    if found.version != version:
        raise CorruptTopicError(path, rules[1], f"the body says version {found.version}")
    if found.topic is not None:
        _check_topic(found.topic, path)
    return found


def _check_topic(topic: TopicInfo, path: str) -> None:
    """Check a topic object right after decoding. Other code relies on this check [META-1]. A type
    that is not known is not damage: a newer writer may know it [TYPE-1]."""
    try:
        for field in topic.fields:
            to_arrow(field.type)
    except InvalidRequestError as error:
        raise UnsupportedFormatError(f"{path}: {error}. Upgrade pylogtable.") from None
    try:
        check_fields(topic.fields, topic.key)
    except InvalidRequestError as error:
        raise CorruptTopicError(path, "META-1", str(error)) from None
    if compacts(topic.config) and not topic.key:
        raise CorruptTopicError(path, "META-1", "it is compacted and has no key")
    fault = field_fault(topic)
    if fault is not None:
        raise CorruptTopicError(path, fault.rule, fault.detail)


def _decode(decoder: msgspec.json.Decoder[Decoded], data: bytes, path: str, rule: str) -> Decoded:
    try:
        return json_bytes.decode(decoder, data)
    except UndecodableError as error:
        _raise_if_newer(data)
        raise CorruptTopicError(path, rule, str(error)) from None


def _check_sum(data: bytes, path: str) -> None:
    try:
        json_bytes.check_sum(data)
    except UndecodableError as error:
        raise CorruptTopicError(path, "SUM-1", str(error)) from None


def _raise_if_newer(data: bytes) -> None:
    """Raise `UnsupportedFormatError` if the object cannot be decoded because its format is
    newer."""
    try:
        protocol = json_bytes.decode(_protocols, data).protocol
    except UndecodableError:
        return
    if protocol is not None:
        check_readable(protocol)
