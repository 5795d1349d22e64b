"""Offers: appends that wait beside the log for a commit that takes them along. Pure.

A writer that has lost a race leaves what it wants to append as an object of its own name. Whoever
commits next takes it along. An offer lands once at most, because whoever takes it along has read
every commit that may have it already [OFFER-3].
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec

from pylogtable.errors import CorruptTopicError
from pylogtable.format import json_bytes
from pylogtable.format.field_ids import Fault
from pylogtable.format.json_bytes import UndecodableError
from pylogtable.format.model import (
    COMBINED_APPENDS,
    MAX_ROWS_BYTES,
    Commit,
    Natural,
    Protocol,
    StagedSegment,
    StoredObject,
    Txn,
)
from pylogtable.format.paths import offer_name, offer_path, seen_in
from pylogtable.format.recent_commits import OFFER_WINDOW, RecentCommits
from pylogtable.format.segment_checks import check_entry

#: A larger one is not made, and not taken along.
MAX_OFFER_BYTES = 2 * MAX_ROWS_BYTES


class Offer(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """An append that waits [OFFER-2]. `seen` is the version of the topic that it was planned on.
    `add` and `rows` are its data files and records, `expected_last` the last txn of its app id as
    its writer knows it."""

    topic_id: str
    seen: Natural
    id: str
    staged_at_ms: Natural
    add: tuple[StagedSegment, ...] = ()
    rows: str | None = None
    txn: Txn | None = None
    expected_last: Natural | msgspec.UnsetType | None = msgspec.UNSET

    @property
    def name(self) -> str:
        return offer_name(self.seen, self.id)


class Fate(Enum):
    """What is known of an offer [OFFER-3]. An offer of which the last commits are not all known is
    UNKNOWN: others can tell."""

    OPEN = "open"
    LANDED = "landed"
    VOID = "void"
    UNKNOWN = "unknown"


_offers = msgspec.json.Decoder(Offer)


def encode_offer(offer: Offer) -> bytes:
    return json_bytes.encode_summed(offer)


def decode_offer(data: bytes, name: str) -> Offer:
    """The offer of this name. Raises `CorruptTopicError` if it is damaged [OFFER-2]."""
    path = offer_path(name)
    if len(data) > MAX_OFFER_BYTES or not json_bytes.has_sum(data):
        raise CorruptTopicError(path, "OFFER-2", "it is too large, or has no checksum")
    try:
        offer = json_bytes.decode(_offers, data)
        json_bytes.check_sum(data)
    except UndecodableError as error:
        raise CorruptTopicError(path, "OFFER-2", str(error)) from None
    if offer.name != name:
        raise CorruptTopicError(path, "OFFER-2", f"the body says {offer.name}")
    if any(file.given_end is not None for file in offer.add):
        raise CorruptTopicError(path, "OFFER-2", "its records have offsets")
    if (offer.rows is None) == any(file.is_inline for file in offer.add):
        raise CorruptTopicError(path, "OFFER-2", "its rows and its entries do not fit")
    for file in offer.add:
        check_entry(file.placed_at(file.predicted_base, path_of_rows), file.partition, source=path)
    return offer


#: Where the rows of an offer would be if it landed in version 0. Only to check its entries.
path_of_rows = "_manifest/00000000000000000000.json"


def fate_of(name: str, version: int, recent: RecentCommits) -> Fate:
    """What has become of an offer, as the state at `version` knows [OFFER-3]. Whether its txn may
    still be applied is another question [OFFER-5]."""
    seen = seen_in(name)
    if seen is None or seen > version:
        return Fate.UNKNOWN
    if recent.find(name, seen) is not None:
        return Fate.LANDED
    if seen < recent.since:
        return Fate.UNKNOWN
    is_late = version >= seen + OFFER_WINDOW
    return Fate.VOID if is_late or recent.altered > seen else Fate.OPEN


def appends_fault(commit: Commit, protocol: Protocol, ends: Mapping[int, int]) -> Fault | None:
    """The rule that the appends of a commit break; None if they break none. `ends` are the end
    offsets before it."""
    if not commit.appends:
        return None
    if COMBINED_APPENDS not in protocol.writer_features:
        return Fault(
            "OFFER-1", f"it has appends, and the protocol does not name {COMBINED_APPENDS}"
        )
    if commit.txn is not None or commit.operation != "append":
        return Fault("OFFER-4", "it has appends, and a txn of its own or another operation")
    at: dict[int, int] = {}
    named: set[str] = set()
    for one in commit.appends:
        if one.offer is not None:
            seen = seen_in(one.offer)
            is_in_window = seen is not None and seen < commit.version <= seen + OFFER_WINDOW
            if not is_in_window or one.offer in named:
                return Fault("OFFER-3", f"offer {one.offer!r} cannot land in it")
            named.add(one.offer)
        for number, (start, end) in one.offsets.items():
            if start != at.get(number, ends.get(number, 0)) or end < start:
                detail = f"an append begins at offset {start} of partition {number}"
                return Fault("OFFER-4", detail)
            at[number] = end
        if one.records != sum(end - start for start, end in one.offsets.values()):
            return Fault("OFFER-4", f"an append has {one.records} records, and other offsets")
    if at != commit.ends:
        return Fault("OFFER-4", "its appends do not add up to its ends")
    apps = [one.txn.app_id for one in commit.appends if one.txn is not None]
    if len(set(apps)) != len(apps):
        return Fault("OFFER-4", "it has two txns of an app id")
    return None
