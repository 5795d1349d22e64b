"""Offers: commits of members that others may take along, as the specification's `groups.md` has
them. Pure.

An offer is an object whose name says everything. So one listing shows all offers, and none of them
can be read half.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from pylogtable.format import json_bytes
from pylogtable.format.group_model import GroupOffer
from pylogtable.format.json_bytes import UndecodableError

#: Names that are longer are not used: stores allow 1,024 bytes for the whole key, and some of them
#: 255 between two slashes.
MAX_NAME = 640
_BETWEEN_SLASHES = 200
_DIGITS = 20


_offers: msgspec.json.Decoder[GroupOffer] = msgspec.json.Decoder(GroupOffer)


def name_of(offer: GroupOffer) -> str | None:
    """The name of the offer's object, below the folder of offers. Names sort by time. None if it
    would be too long."""
    text = base64.urlsafe_b64encode(msgspec.json.encode(offer)).decode().rstrip("=")
    pieces = [text[at : at + _BETWEEN_SLASHES] for at in range(0, len(text), _BETWEEN_SLASHES)]
    name = f"{offer.committed_at_ms:0{_DIGITS}d}-{'/'.join(pieces)}"
    return name if len(name) <= MAX_NAME else None


def decode_offer(name: str) -> GroupOffer | None:
    """The offer with this name; None if it says nothing that can be understood."""
    text = name.partition("-")[2].replace("/", "")
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return json_bytes.decode(_offers, data)
    except (UndecodableError, binascii.Error, ValueError):
        return None
