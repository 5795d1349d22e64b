"""Decides over a whole history whether the log kept its promises. Pure.

An unknown outcome may be in the log or not, but once at most. The checks look at all that anybody
saw at any time, not only at the contents at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

import numpy as np

from pylogtable.prove.findings import Anomaly, Findings
from pylogtable.prove.group_checks import check_groups
from pylogtable.prove.history import (
    APPEND,
    ENDS,
    OK,
    POLL,
    READ,
    Contents,
    History,
    Ints,
    Operation,
)
from pylogtable.prove.records import (
    Bools,
    HighWater,
    Senders,
    certainty,
    ints,
    offset_of,
    partition_of,
    place_text,
    seen_by,
    sent_by,
)

#: How long a call may take, without the time in which its process was stopped.
DEADLINE_SECONDS = 120.0
#: Errors that a store in trouble, or another writer, explains.
EXPLAINED = frozenset(
    {
        "StorageError",
        "UnansweredError",
        "NotSentError",
        "CommitConflictError",
        "CommitUnknownError",
    }
)
_LAST = "the last read"


def check(
    history: History, contents: Contents, deadline_seconds: float = DEADLINE_SECONDS
) -> list[Anomaly]:
    """All anomalies of a history that ended with these contents; none if all is well."""
    findings = Findings()
    _check_calls(history, deadline_seconds, findings)
    for problem in contents.problems:
        findings.add("broken-topic", problem)
    log = _Log(history, contents, findings)
    log.check_places()
    log.check_reads()
    log.check_real_time()
    if not contents.is_broken:
        log.check_outcomes()
        log.check_senders()
        check_groups(history.operations, contents.positions, findings)
    return findings.anomalies()


def _check_calls(history: History, deadline_seconds: float, findings: Findings) -> None:
    """Calls that hang, and errors that nothing explains."""
    for one in history.operations:
        stopped = sum(
            max(0.0, min(one.ended, end) - max(one.begun, begin))
            for begin, end in history.paused.get(one.process, ())
        )
        is_stuck = one.ended == math.inf and one.process in history.stuck
        if is_stuck or (one.ended < math.inf and one.seconds - stopped > deadline_seconds):
            took = "did not return" if is_stuck else f"took {one.seconds - stopped:.1f} s"
            findings.add(
                "hang", f"{one.kind} {took}; the deadline is {deadline_seconds:g} s", [one]
            )
        error = one.told.get("error")
        if error is not None and error.partition(":")[0] not in EXPLAINED:
            findings.add("unexpected-error", f"{one.kind} failed: {error}", [one])
    appends = [one for one in history.operations if one.kind == APPEND]
    if not any(one.outcome == OK for one in appends):
        errors = (one.told["error"] for one in appends if "error" in one.told)
        why = next(errors, "no error was reported")
        findings.add("no-progress", f"none of {len(appends):,} appends was acknowledged: {why}")


def last_read(contents: Contents) -> Operation:
    """The contents as a read of the whole log, after everything else."""
    told = {"rows": contents.runs, "to": contents.ends}
    asked = {"from": dict.fromkeys(contents.ends, 0)}
    return Operation(_LAST, 0, READ, math.inf, math.inf, OK, asked, told)


class _Log:
    """The records of a history, and the checks of them."""

    def __init__(self, history: History, contents: Contents, findings: Findings) -> None:
        self._operations: Sequence[Operation] = [*history.operations, last_read(contents)]
        self._findings = findings
        self._senders = Senders()
        self._sent = sent_by(self._operations, self._senders)
        self._seen = seen_by(self._operations, self._senders)
        at_end = self._seen.operation == len(self._operations) - 1
        self._final_value = self._seen.value[at_end]
        self._final_place = self._seen.place[at_end]

    def _operation(self, index: int) -> Operation | None:
        return None if index == len(self._operations) - 1 else self._operations[index]

    def _who_sent(self, value: int) -> list[Operation | None]:
        rows = np.flatnonzero(self._sent.value == value)
        return [self._operation(at) for at in self._sent.operation[rows].tolist()]

    def _who_saw(self, value: int, place: int) -> list[Operation | None]:
        rows = np.flatnonzero((self._seen.value == value) & (self._seen.place == place))
        return [self._operation(at) for at in self._seen.operation[rows[:2]].tolist()]

    @cached_property
    def _certainty(self) -> Ints:
        """For each value that was sent, the best outcome of those that sent it."""
        outcomes = certainty(self._operations)[self._sent.operation]
        return self._sent.per_value(outcomes, np.maximum).astype(np.int64)

    @cached_property
    def _final_order(self) -> Ints:
        return np.argsort(self._final_value, kind="stable")

    def _final_places(self, values: Ints) -> Ints:
        """Where the values are at the end, -1 if they are not there."""
        if not len(self._final_value):
            return np.full(len(values), -1, np.int64)
        ordered = self._final_value[self._final_order]
        found = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
        places = self._final_place[self._final_order][found]
        return np.where(ordered[found] == values, places, -1)

    def check_places(self) -> None:
        """One value at each offset, and one offset for each value, whoever saw it and when."""
        told = self._sent.place >= 0
        by_ack = (self._sent.value[told], self._sent.place[told])
        by_read = (self._seen.value, self._seen.place)
        value = np.concatenate([by_ack[0], by_read[0]])
        place = np.concatenate([by_ack[1], by_read[1]])
        value, place = _distinct(value, place)

        order = np.lexsort((value, place))
        clash = np.flatnonzero(np.diff(place[order]) == 0)
        ack_places = _with_several_values(*by_ack)
        for is_reuse in (True, False):
            name = "offset-reused" if is_reuse else "two-values-at-one-offset"
            mine = clash[np.isin(place[order][clash], ack_places) == is_reuse]
            self._findings.add_all(name, mine, self._two_values(value[order], place[order]))

        seen_value, seen_place = _distinct(*by_read)
        order = np.lexsort((seen_place, seen_value))
        twice = np.flatnonzero(np.diff(seen_value[order]) == 0)
        is_sure = self._is_ok(seen_value[order][twice])
        describe = self._two_places(seen_value[order], seen_place[order])
        self._findings.add_all("duplicate", twice[is_sure], describe)
        self._findings.add_all("unknown-write-twice", twice[~is_sure], describe)

    def _is_ok(self, values: Ints) -> Bools:
        """True where an append of the value was acknowledged."""
        if not len(self._sent.values):
            return np.zeros(len(values), np.bool_)
        found = np.searchsorted(self._sent.values, values)
        found = np.minimum(found, len(self._sent.values) - 1)
        is_ok: Bools = (self._sent.values[found] == values) & (self._certainty[found] == 2)
        return is_ok

    def _two_values(self, value: Ints, place: Ints) -> _Describe:
        def describe(at: int) -> tuple[str, list[Operation | None]]:
            one, other, where = int(value[at]), int(value[at + 1]), int(place[at])
            sentence = (
                f"{place_text(where)} is both {self._senders.text(one)} and "
                f"{self._senders.text(other)}"
            )
            involved = [*self._who_saw(one, where), *self._who_saw(other, where)]
            return sentence, [*self._who_sent(one), *self._who_sent(other), *involved]

        return describe

    def _two_places(self, value: Ints, place: Ints) -> _Describe:
        def describe(at: int) -> tuple[str, list[Operation | None]]:
            one, first, second = int(value[at]), int(place[at]), int(place[at + 1])
            sentence = (
                f"{self._senders.text(one)} is at {place_text(first)} and at {place_text(second)}"
            )
            involved = [*self._who_saw(one, first), *self._who_saw(one, second)]
            return sentence, [*self._who_sent(one), *involved]

        return describe

    def check_outcomes(self) -> None:
        """Acknowledged records are there, where they were told; failed ones are not."""
        sent, findings = self._sent, self._findings
        values = sent.values
        at_end = self._final_places(values)

        lost = np.flatnonzero((self._certainty == 2) & (at_end < 0))
        findings.add_all("lost-write", lost, lambda at: self._about(int(values[at]), "is missing"))

        rows = np.flatnonzero(sent.place >= 0)
        now = self._final_places(sent.value[rows])
        moved = rows[(now >= 0) & (now != sent.place[rows])]
        # A duplicate has several places, and one of them is the right one.
        if len(moved):
            pairs = set(zip(self._final_value.tolist(), self._final_place.tolist(), strict=True))
            told = zip(sent.value[moved].tolist(), sent.place[moved].tolist(), strict=True)
            moved = moved[[pair not in pairs for pair in told]]
        findings.add_all(
            "misplaced-write",
            moved,
            lambda row: self._about(
                int(sent.value[row]), f"is not at {place_text(int(sent.place[row]))}, as was told"
            ),
        )

        failed = values[self._certainty == 0]
        seen_values, first_row = np.unique(self._seen.value, return_index=True)
        landed = first_row[np.isin(seen_values, failed)]
        findings.add_all(
            "failed-write-landed", landed, self._about_seen("was read, but had failed")
        )
        unsent = first_row[~np.isin(seen_values, values)]
        findings.add_all("never-sent", unsent, self._about_seen("was read, and nobody sent it"))
        gone = first_row[~np.isin(seen_values, self._final_value) & ~self._is_ok(seen_values)]
        findings.add_all("read-then-gone", gone, self._about_seen("was read, and is gone"))
        self._check_torn(values, at_end)

    def _check_torn(self, values: Ints, at_end: Ints) -> None:
        """An append is there as a whole or not at all. What several operations tried to append
        proves nothing about one of them."""
        sent = self._sent
        if not len(sent.value):
            return
        index = np.searchsorted(values, sent.value)
        tries = np.bincount(index, minlength=len(values))
        is_alone = tries[index] == 1
        count = len(self._operations)
        rows = np.bincount(sent.operation, minlength=count)
        alone = np.bincount(sent.operation, is_alone, minlength=count)
        there = np.bincount(sent.operation, at_end[index] >= 0, minlength=count)
        is_ok = certainty(self._operations) == 2
        torn = np.flatnonzero((rows == alone) & (there > 0) & (there < rows) & ~is_ok)
        self._findings.add_all(
            "torn-append",
            torn,
            lambda at: (
                f"{int(there[at])} of {int(rows[at])} records are there",
                [self._operation(at)],
            ),
        )

    def _about(self, value: int, what: str) -> tuple[str, list[Operation | None]]:
        return f"{self._senders.text(value)} {what}", self._who_sent(value)

    def _about_seen(self, what: str) -> _Describe:
        def describe(row: int) -> tuple[str, list[Operation | None]]:
            value, place = int(self._seen.value[row]), int(self._seen.place[row])
            sentence = f"{self._senders.text(value)} {what}, at {place_text(place)}"
            return sentence, [*self._who_sent(value), *self._who_saw(value, place)]

        return describe

    def check_senders(self) -> None:
        """Acknowledged records of one sender are in its order in each partition."""
        value, place = _distinct(self._final_value, self._final_place)
        keep = self._is_ok(value)
        value, place = value[keep], place[keep]
        order = np.lexsort((place, value, partition_of(place), Senders.code_of(value)))
        value, place = value[order], place[order]
        is_same = np.diff(Senders.code_of(value)) == 0
        is_same &= np.diff(partition_of(place)) == 0
        wrong = np.flatnonzero(is_same & (np.diff(place) < 0) & (np.diff(value) > 0))
        self._findings.add_all(
            "sender-order",
            wrong,
            lambda at: (
                f"{self._senders.text(int(value[at]))} at {place_text(int(place[at]))} was sent "
                f"before {self._senders.text(int(value[at + 1]))} at "
                f"{place_text(int(place[at + 1]))}",
                [*self._who_sent(int(value[at])), *self._who_sent(int(value[at + 1]))],
            ),
        )

    def check_reads(self) -> None:
        """A read returns every record from where it began to where it ended, in order."""
        for index, one in enumerate(self._operations):
            if one.outcome != OK or one.kind not in (READ, POLL):
                continue
            at = {int(number): offset for number, offset in one.asked.get("from", {}).items()}
            for partition, offset, _, _, count in one.told["rows"]:
                expected = at.get(partition, offset)
                self._check_step(index, partition, expected, offset)
                at[partition] = offset + count
            for number, end in one.told.get("to", {}).items():
                self._check_step(index, int(number), at.get(int(number), end), end)

    def _check_step(self, index: int, partition: int, expected: int, found: int) -> None:
        if found == expected:
            return
        name = "poll-skipped" if found > expected else "poll-went-back"
        sentence = f"after {partition}:{expected} came {partition}:{found}"
        self._findings.add(name, sentence, [self._operation(index)])

    def check_real_time(self) -> None:
        """What was acknowledged, or read, before a call began is before what the call appends,
        and a read sees it."""
        reached = list(self._reached())
        known = HighWater(
            ints(partition for _, partition, _ in reached),
            np.array([self._operations[at].ended for at, _, _ in reached], np.float64),
            ints(end for _, _, end in reached),
            ints(at for at, _, _ in reached),
        )
        looks = [
            (at, partition, end)
            for at, partition, end in reached
            if self._operations[at].kind in (READ, ENDS)
        ]
        looks_at = [(at, p, end, self._operations[at].begun) for at, p, end in looks]
        self._compare(known, looks_at, "stale-read", _stale)
        self._compare(known, self._landed(), "real-time-order", _too_early)

    def _reached(self) -> Iterable[tuple[int, int, int]]:
        """(operation, partition, end): how far an operation knew a partition to reach."""
        for at, one in enumerate(self._operations):
            if one.outcome != OK:
                continue
            if one.kind == APPEND and "offsets" in one.told:
                for (partition, _, count), offset in zip(
                    one.asked["rows"], one.told["offsets"], strict=True
                ):
                    yield at, partition, offset + count
            elif one.kind in (READ, ENDS):
                for number, end in one.told["to"].items():
                    yield at, int(number), end
            elif one.kind == POLL:
                for partition, offset, _, _, count in one.told["rows"]:
                    yield at, partition, offset + count

    def _landed(self) -> list[tuple[int, int, int, float]]:
        """(operation, partition, offset, time) of the records at the end: the time at which the
        first append of the record began. A repeat of it began later, and got the same offset."""
        sent = self._sent
        if not len(sent.value):
            return []
        begun = np.array([one.begun for one in self._operations])[sent.operation]
        earliest = sent.per_value(begun, np.minimum)
        index = np.searchsorted(sent.values, sent.value)
        first = np.flatnonzero(begun == earliest[index])
        place = self._final_places(sent.value[first])
        first, place = first[place >= 0], place[place >= 0]
        partition = partition_of(place)
        # The lowest offset of each operation in each partition decides.
        order = np.lexsort((place, partition, sent.operation[first]))
        first, place, partition = first[order], place[order], partition[order]
        operation = sent.operation[first]
        is_new = np.ones(len(first), np.bool_)
        is_new[1:] = (np.diff(operation) != 0) | (np.diff(partition) != 0)
        offset = offset_of(place)
        columns = (operation[is_new], partition[is_new], offset[is_new], begun[first][is_new])
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def _compare(
        self,
        known: HighWater,
        looks: Sequence[tuple[int, int, int, float]],
        name: str,
        sentence: Callable[[int, int, int], str],
    ) -> None:
        """Each of (operation, partition, offset, time) has to be at least at the end that was known
        before that time."""
        if not looks:
            return
        operation, partition = ints(row[0] for row in looks), ints(row[1] for row in looks)
        offset, time = ints(row[2] for row in looks), np.array([row[3] for row in looks])
        for number in np.unique(partition).tolist():
            mine = np.flatnonzero(partition == number)
            high, knower = known.before(number, time[mine])
            wrong = np.flatnonzero(high > offset[mine])
            for at in wrong.tolist():
                self._findings.add(
                    name,
                    sentence(number, int(offset[mine[at]]), int(high[at])),
                    [self._operation(int(knower[at])), self._operation(int(operation[mine[at]]))],
                )


_Describe = Callable[[int], tuple[str, Iterable[Operation | None]]]


def _stale(partition: int, offset: int, known: int) -> str:
    return f"partition {partition} ended at {offset} for it, and was known to end at {known}"


def _too_early(partition: int, offset: int, known: int) -> str:
    return f"it got {partition}:{offset}, and the partition was known to end at {known} before"


def _distinct(value: Ints, place: Ints) -> tuple[Ints, Ints]:
    """The different pairs."""
    order = np.lexsort((place, value))
    value, place = value[order], place[order]
    is_new = np.ones(len(value), np.bool_)
    is_new[1:] = (np.diff(value) != 0) | (np.diff(place) != 0)
    return value[is_new], place[is_new]


def _with_several_values(value: Ints, place: Ints) -> Ints:
    """The places that different values were told to be at."""
    value, place = _distinct(value, place)
    places, count = np.unique(place, return_counts=True)
    several: Ints = places[count > 1]
    return several
