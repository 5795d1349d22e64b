"""Which records of a batch the program has got. The rest is not committed, and is read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pyarrow as pa

from pylogtable.format.model import TopicInfo
from pylogtable.groups.fetcher import Fetcher


class Delivery:
    """The positions of one consumer, while it delivers a batch record by record, and otherwise."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        #: The next offset to deliver of each partition, while a batch is delivered. Another dict as
        #: soon as something else moves the consumer.
        self.pending: dict[int, int] = {}

    @property
    def positions(self) -> dict[int, int]:
        """The first offset of each partition that was not delivered yet."""
        return {**self._fetcher.positions, **self.pending}

    def begin(self, before: Mapping[int, int]) -> dict[int, int]:
        """Deliver a batch that was read from these positions. Returns `pending`, for the caller to
        move."""
        self.pending = dict(before)
        return self.pending

    def finish(self) -> None:
        """The whole batch is delivered."""
        self.pending = {}

    def take_back(self) -> None:
        """What is not delivered is read again."""
        pending, self.pending = self.pending, {}
        positions = self._fetcher.positions
        for number, at in pending.items():
            if positions.get(number, at) != at:
                self._fetcher.seek(number, at)


class Batch(NamedTuple):
    """Records of one topic, read from the positions `before`. `look` takes or gives up partitions
    of its consumer, which others may wait for if `look_is_due`."""

    topic: str
    info: TopicInfo
    table: pa.Table
    before: Mapping[int, int]
    delivery: Delivery
    look_is_due: Callable[[], bool]
    look: Callable[[], None]

    def give_back(self) -> None:
        """Nothing of it was delivered."""
        self.delivery.begin(self.before)
        self.delivery.take_back()
