"""Puts, lists, reads and removes the offers of a topic. They are beside its log [OFFER-2]."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from pylogtable.errors import CorruptTopicError, StorageError
from pylogtable.format.offers import Offer, decode_offer, encode_offer
from pylogtable.format.paths import OFFERS_DIR, offer_path, parse_offer_path
from pylogtable.storage.base import Created, ObjectStore

_logger = logging.getLogger(__name__)


class OfferObjects:
    """The offers of the topic at the root of `store`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def put(self, offer: Offer) -> Created:
        """Put an offer. Its name is its own, so only the same offer can exist already."""
        return self._store.create(offer_path(offer.name), encode_offer(offer))

    def names(self) -> list[str]:
        """The names of all offers, the oldest first. None of them if they cannot be listed: then
        others take them along."""
        try:
            names = [parse_offer_path(entry.key) for entry in self._store.list(OFFERS_DIR)]
        except StorageError as error:
            _logger.info("offers at %s were not listed: %s", self._store.url, error)
            return []
        return [name for name in names if name is not None]

    def read(self, names: Sequence[str]) -> dict[str, Offer | None]:
        """These offers by name. None for one that is gone or damaged: it stops nobody [OFFER-6]."""
        try:
            found = self._store.read_many([offer_path(name) for name in names])
        except StorageError as error:
            _logger.info("offers at %s were not read: %s", self._store.url, error)
            return {}
        return {name: self._decoded(data, name) for name, data in zip(names, found, strict=True)}

    def _decoded(self, data: bytes | None, name: str) -> Offer | None:
        try:
            return None if data is None else decode_offer(data, name)
        except CorruptTopicError as error:
            _logger.warning("an offer at %s is passed over: %s", self._store.url, error)
            return None

    def remove(self, names: Iterable[str]) -> None:
        """Remove offers that have landed, or never will. What stays is removed by vacuum."""
        try:
            self._store.delete_many([offer_path(name) for name in names])
        except StorageError as error:
            _logger.info("offers at %s were not removed: %s", self._store.url, error)
