"""What a checker has found: anomalies by name, each with examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pylogtable.prove.history import Ints, Operation

#: The sentence about one place, and the operations concerned.
Describe = Callable[[int], tuple[str, Iterable[Operation | None]]]

MOST_EXAMPLES = 10

#: What each anomaly means. The names are stable.
ANOMALIES = {
    "lost-write": "an append was acknowledged, and its record is not in the log",
    "duplicate": "a record is in the log twice",
    "unknown-write-twice": "a record whose append had an unknown outcome is in the log twice",
    "two-values-at-one-offset": "different records were seen at the same offset",
    "offset-reused": "two appends were acknowledged with the same offset",
    "misplaced-write": "a record is at another offset than its append was told",
    "sender-order": "records of one sender are not in the order in which it sent them",
    "never-sent": "a record was read that nobody has sent",
    "failed-write-landed": "an append was told that it had failed, and its record was read",
    "torn-append": "a part of an append is in the log, and the rest is not",
    "read-then-gone": "a record was read, and is not in the log at the end",
    "poll-skipped": "a reader was not given records in its way",
    "poll-went-back": "a reader was given records again that were behind it",
    "real-time-order": "an append got offsets before those of one that was acknowledged earlier",
    "stale-read": "a read did not see what was acknowledged before it began",
    "position-went-back": "a committed position of a group went back",
    "unread-position": "a group committed a position beyond what its members were given",
    "two-owners": "two commits of a group cover the same records: two members had the partition",
    "hang": "a call did not return in time",
    "unexpected-error": "a call failed with an error that no fault explains",
    "broken-topic": "the topic does not pass its verification",
    "no-progress": "no append was acknowledged, so nothing was proven",
}


@dataclass(frozen=True)
class Example:
    """One place where an anomaly was found, with the ids of the operations concerned."""

    sentence: str
    operations: tuple[str, ...]


@dataclass(frozen=True)
class Anomaly:
    """All places of one kind. `times` counts them; `examples` has the first of them."""

    name: str
    times: int
    examples: tuple[Example, ...]

    @property
    def meaning(self) -> str:
        return ANOMALIES[self.name]


class Findings:
    """Collects anomalies. Only the first examples of each name are kept."""

    def __init__(self) -> None:
        self._examples: dict[str, list[Example]] = {}
        self._times: dict[str, int] = {}

    def add(self, name: str, sentence: str, operations: Iterable[Operation | None] = ()) -> None:
        """Note one place. None stands for the last read, which no client has made."""
        self._times[name] = self._times.get(name, 0) + 1
        if self._times[name] <= MOST_EXAMPLES:
            ids = tuple(dict.fromkeys(one.id for one in operations if one is not None))
            self._examples.setdefault(name, []).append(Example(sentence, ids))

    def add_all(self, name: str, places: Ints, describe: Describe) -> None:
        """Note many places. Only those that become examples are described."""
        for place in places[:MOST_EXAMPLES].tolist():
            self.add(name, *describe(place))
        more = len(places) - MOST_EXAMPLES
        if more > 0:
            self._times[name] += more

    def anomalies(self) -> list[Anomaly]:
        """In the order of `ANOMALIES`."""
        return [
            Anomaly(name, self._times[name], tuple(self._examples.get(name, ())))
            for name in ANOMALIES
            if self._times.get(name)
        ]
