"""Stores and libraries that are broken on purpose: a proof has to find each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pylogtable.prove import client
from pylogtable.prove.client import Assignment
from pylogtable.prove.clients import serve
from pylogtable.storage.base import Created, ObjectStore
from pylogtable.storage.delegating import WrappedStore
from pylogtable.storage.open import open_store


def _is_commit(key: str) -> bool:
    """True for commits after the one that created the topic."""
    name = key.removeprefix("_manifest/").removesuffix(".json")
    return name.isdigit() and int(name) > 1


class _Broken(WrappedStore):
    def below(self, prefix: str) -> ObjectStore:
        return type(self)(self._inner.below(prefix))


class ForgetfulStore(_Broken):
    """It acknowledges some objects, and does not store them."""

    puts = 0

    def create(self, key: str, data: bytes) -> Created:
        if _is_commit(key):
            ForgetfulStore.puts += 1
            if ForgetfulStore.puts % 9 == 0:
                return Created.YES
        return super().create(key, data)


class OverwritingStore(_Broken):
    """It ignores the condition of a put."""

    def create(self, key: str, data: bytes) -> Created:
        self.write(key, data)
        return Created.YES


class StaleStore(_Broken):
    """The newest commit cannot be read at first."""

    seen: ClassVar[set[str]] = set()

    def read(self, key: str) -> bytes | None:
        if _is_commit(key) and key not in StaleStore.seen:
            data = super().read(key)
            if data is not None:
                StaleStore.seen.add(key)
            return None
        return super().read(key)


def opening(broken: type[_Broken]) -> object:
    """What to put in the place of `open_store`."""

    def open_broken(url: str, options: Mapping[str, object] | None = None) -> ObjectStore:
        return broken(open_store(url, options))

    return open_broken


def serve_on_overwriting_store(assignment: Assignment) -> None:
    """A client process on a store that ignores the condition of a put."""
    client.open_store = opening(OverwritingStore)  # type: ignore[assignment]
    serve(assignment)
