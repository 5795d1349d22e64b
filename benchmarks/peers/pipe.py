"""A stream from a table of a peer to another table of it, and how long records take through it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from benchmarks.peers.peer import Peer

WARM_UP = 5


@dataclass(frozen=True)
class Passage:
    """Seconds that one append took through a stream."""

    #: Of the trigger that carried it, by Spark's own count.
    trigger: float
    #: From the start of the append until Spark noted that the batch is committed.
    to_commit: float


class Pipe:
    """A stream between two empty tables."""

    def __init__(self, peer: Peer, source: str, sink: str, checkpoint: str) -> None:
        self._peer = peer
        self._source = source
        self._sink = sink
        self._checkpoint = checkpoint

    def run(self, rows: Callable[[], DataFrame], appends: int) -> list[Passage]:
        """Start the query, append so many times, one at a time, and stop it. The first appends warm
        up and are not counted."""
        peer = self._peer
        query = peer.start(peer.stream(self._source), self._sink, self._checkpoint)
        passages = []
        try:
            for number in range(WARM_UP + appends):
                passage = self._pass(query, rows())
                if number >= WARM_UP:
                    passages.append(passage)
        finally:
            query.stop()
        return passages

    def count(self) -> int:
        """The records that came out."""
        return self._peer.read(self._sink).count()

    def _pass(self, query: StreamingQuery, rows: DataFrame) -> Passage:
        before = self._last_commit()[0]
        began = time.time()
        self._peer.append(self._source, rows)
        # Kafka has no commits, so its rows may come in two batches.
        query.processAllAvailable()
        batch, committed = self._last_commit()
        assert batch > before, f"{self._peer.name} has not carried the rows of an append"
        triggers = [
            progress["durationMs"]["triggerExecution"] / 1e3
            for progress in query.recentProgress
            if progress["batchId"] > before and "addBatch" in progress["durationMs"]
        ]
        return Passage(sum(triggers), committed - began)

    def _last_commit(self) -> tuple[int, float]:
        """The newest batch that Spark noted as committed, and when."""
        folder = Path(self._checkpoint, "commits")
        numbers = [int(path.name) for path in folder.glob("*") if path.name.isdigit()]
        if not numbers:
            return -1, 0.0
        last = max(numbers)
        return last, (folder / str(last)).stat().st_mtime
