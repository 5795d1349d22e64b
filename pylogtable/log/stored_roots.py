"""Reads the roots of a topic. A root that cannot be used is ignored, and the reason is logged."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator

from pylogtable.errors import CorruptTopicError
from pylogtable.format.json_codec import decode_root
from pylogtable.format.paths import MANIFEST_DIR, parse_root_path, root_path
from pylogtable.format.roots import from_root
from pylogtable.format.snapshot import Snapshot
from pylogtable.storage.base import ObjectStore

_logger = logging.getLogger(__name__)


class RootObjects:
    """The roots of the topic at the root of `store`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def examine(self, version: int) -> Snapshot | CorruptTopicError | None:
        """The state in the root of `version`, or why it cannot be used [ROOT-6]; None if there is
        no such root."""
        return self.decode(self._store.read(root_path(version)), version)

    def decode(self, data: bytes | None, version: int) -> Snapshot | CorruptTopicError | None:
        """Like `examine`, with the encoded root."""
        if data is None:
            return None
        try:
            return from_root(decode_root(data, version))
        except CorruptTopicError as error:
            return error

    def read(self, version: int) -> Snapshot | None:
        """The state in the root of `version`; None if there is none, or it cannot be used."""
        return self.usable(self.examine(version))

    def usable(self, found: Snapshot | CorruptTopicError | None) -> Snapshot | None:
        """What was found, if it can be used. Otherwise the log says why not."""
        if isinstance(found, CorruptTopicError):
            self.ignore(found)
            return None
        return found

    def ignore(self, why: CorruptTopicError) -> None:
        """Say in the log that a root is not used."""
        _logger.warning("a root of %s is ignored: %s", self._store.url, why)

    def versions(self) -> list[int]:
        """The versions that have a root, ascending, by a listing."""
        return _versions(entry.key for entry in self._store.list(MANIFEST_DIR))

    def newest_first(self, keys: Iterable[str]) -> Iterator[Snapshot | CorruptTopicError]:
        """The roots among these keys, from the newest to the oldest, each read when it is asked
        for."""
        for version in reversed(_versions(keys)):
            found = self.examine(version)
            if found is not None:
                yield found

    def at_or_below(self, version: int) -> Iterator[Snapshot]:
        """The roots at or below a version that can be used, the newest first. Most roots are at
        multiples of the interval, so these are tried before a listing."""
        interval = self._store.limits.root_interval
        nearest = version - version % interval
        tried: set[int] = set()
        for candidate in (nearest, nearest - interval):
            if candidate > 0:
                tried.add(candidate)
                root = self.read(candidate)
                if root is not None:
                    yield root
        if nearest > 0:
            yield from self._listed_below(version, tried)

    def newest_below(self, version: int) -> Iterator[Snapshot]:
        """All roots at or below a version that can be used, the newest first, by a listing."""
        return self._listed_below(version, set())

    def early(self, version: int) -> Iterator[Snapshot]:
        """The roots at or below a version that is below the first multiple of the interval: that
        of a deleted topic, or of another writer. They matter only if a vacuum has removed the
        first commits [READ-5]."""
        if version < self._store.limits.root_interval:
            yield from self._listed_below(version, set())

    def _listed_below(self, version: int, tried: Collection[int]) -> Iterator[Snapshot]:
        for candidate in reversed(self.versions()):
            if candidate <= version and candidate not in tried:
                root = self.read(candidate)
                if root is not None:
                    yield root


def _versions(keys: Iterable[str]) -> list[int]:
    return sorted(version for version in map(parse_root_path, keys) if version is not None)
