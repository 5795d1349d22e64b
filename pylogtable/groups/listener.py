"""Tells a program which partitions its consumer gets and loses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pylogtable.groups.options import Callbacks, OnPartitions
from pylogtable.operation import new_operation


class Listener:
    """Calls the program's functions, each once for each change, in the thread that polls. What it
    has told counts as told even if the function raises: the next poll goes on behind it."""

    def __init__(self, callbacks: Callbacks, topic_name: str) -> None:
        self._callbacks = callbacks
        self._topic_name = topic_name
        #: The partitions that the program knows it has, with their tenures.
        self._told: dict[int, int] = {}

    @property
    def is_talking(self) -> bool:
        """True while one of the program's functions runs."""
        return self._callbacks.talk.is_on

    def revoke(self, consumer: Any, partitions: Iterable[int]) -> None:
        """The consumer is about to give these partitions up."""
        given = [number for number in partitions if self._told.pop(number, None) is not None]
        self._tell(self._callbacks.on_revoke, consumer, given)

    def follow(self, consumer: Any, tenures: Mapping[int, int]) -> None:
        """The consumer has these partitions now. Others that it had were lost, also those that it
        has got again: somebody else may have moved their positions."""
        if not self._callbacks:
            return
        self.lose(consumer, [n for n, at in self._told.items() if tenures.get(n) != at])
        new = [number for number in tenures if number not in self._told]
        self._told.update({number: tenures[number] for number in new})
        self._tell(self._callbacks.on_assign, consumer, new)

    def end(self, consumer: Any, *, owns: bool) -> None:
        """The consumer is about to leave. `owns` is whether it still has its partitions."""
        (self.revoke if owns else self.lose)(consumer, list(self._told))

    def lose(self, consumer: Any, partitions: Iterable[int]) -> None:
        """The consumer has lost these partitions, and others may have read them since."""
        lost = [number for number in partitions if self._told.pop(number, None) is not None]
        self._tell(self._callbacks.on_lost or self._callbacks.on_revoke, consumer, lost)

    def _tell(self, callback: OnPartitions | None, consumer: Any, partitions: list[int]) -> None:
        if callback is None or not partitions:
            return
        owner, given = self._callbacks.owner, tuple(sorted(partitions))
        self._callbacks.talk.is_on = True
        try:
            with new_operation():
                if owner is None:
                    callback(consumer, given)
                else:
                    callback(owner(), {self._topic_name: given})
        finally:
            self._callbacks.talk.is_on = False
