"""Numbered objects that are put if absent: the commits of a topic, and the states of a group.

An object never changes once it is there, and numbers are used one after the other. So the newest
object is found by reading forward to the first number that is missing, without a listing. Old
objects may be removed, the lowest numbers first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pylogtable.storage.base import Created, ObjectStore


class NumberedObjects:
    """The objects `path_of(0)`, `path_of(1)`, … of a store."""

    def __init__(self, store: ObjectStore, path_of: Callable[[int], str]) -> None:
        self._store = store
        self._path_of = path_of

    def read(self, number: int) -> bytes | None:
        return self._store.read(self._path_of(number))

    def create(self, number: int, data: bytes) -> Created:
        return self._store.create(self._path_of(number), data)

    def read_many(self, numbers: Sequence[int]) -> list[bytes | None]:
        """Read several objects in parallel; the results are in the order of `numbers`."""
        return self._store.read_many([self._path_of(number) for number in numbers])

    def read_with(
        self, key: str, numbers: Sequence[int]
    ) -> tuple[bytes | None, list[tuple[int, bytes | None]]]:
        """Any object of the store, and several of these, in parallel."""
        keys = [key, *(self._path_of(number) for number in numbers)]
        data, *found = self._store.read_many(keys)
        return data, list(zip(numbers, found, strict=True))

    def read_forward(self, start: int) -> Iterator[tuple[int, bytes]]:
        """All objects from `start` to the first that is missing."""
        for wave in self.waves(start):
            for number, data in wave:
                if data is None:
                    return
                yield number, data

    def waves(
        self, start: int, *, first_wave: int = 1, growth: int = 2
    ) -> Iterator[list[tuple[int, bytes | None]]]:
        """The objects from `start` on, without an end. Where requests are slow, they are sent in
        waves: `first_wave` at once, then `growth` times as many, and so on."""
        wave = first_wave
        at = start
        while True:
            numbers = range(at, at + min(wave, self._store.concurrency))
            yield list(zip(numbers, self.read_many(numbers), strict=True))
            at = numbers.stop
            wave *= growth
