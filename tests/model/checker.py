"""Every interleaving of a few writers that run the real commit code, with faults as choices.

A writer is an ordinary function that uses a store. Its code is deterministic, so what it does next
follows from the replies it has had: to advance it by one operation it is run again from its start
with the replies so far, and stopped at the first operation that has no reply yet. What was found
is remembered, so each distinct history of a writer runs once. No thread is needed, and a state of
the whole (the objects, what each writer has been told, the puts still under way, the faults left)
can be compared with those seen before: two schedules that meet in the same state share their
future, which is explored once and counted for both.

Some objects never change once they are there, such as commits and data files where nobody removes
them. To read one that is there, or to write a file that nobody else names, is the same before and
after any step of another writer. So such operations do not wait for their turn. A writer does not
crash before such a read: if it crashes after it, the store is the same, and it was told no less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from pylogtable.storage.base import Created, ObjectStore
from tests.model.replay import (
    FAR_MS,
    NOT_YET,
    REFUSED,
    Objects,
    Operation,
    ReplayStore,
    Suspend,
    perform,
)

REST = "~rest"
DAY_MS = 86_400_000
#: How far the clock goes at the one tick there may be: past the manifest's retention.
TICK_MS = 8 * DAY_MS


#: What a writer was told: the name of its append, and the offsets by partition, or what it raised.
Told = tuple[str, Any]
Program = Callable[[ObjectStore, list[Told]], None]


@dataclass(frozen=True)
class Writer:
    """A program, and what runs in its place after a crash."""

    name: str
    program: Program
    recovery: Writer | None = None
    #: It begins only when the clock has ticked.
    after_tick: bool = False


#: What a writer has read at once.
_Answered = tuple[tuple[str, bytes], ...]


class _State(NamedTuple):
    """Numbers stand for what was seen before, so that states are cheap to compare: `objects` for
    a content of the store, `histories` for what each writer has done and been told."""

    objects: int
    histories: tuple[int, ...]
    under_way: tuple[Operation, ...]
    faults_left: int
    now_ms: int


@dataclass(frozen=True)
class _History:
    writer: Writer
    replies: tuple[Any, ...]
    waits_for: Operation | None
    told_before: tuple[Told, ...]
    heard: tuple[Told, ...]

    @property
    def told(self) -> tuple[Told, ...]:
        return (*self.told_before, *self.heard)


@dataclass(frozen=True)
class Faults:
    """How many faults a schedule may have in all, and of which kinds."""

    limit: int = 0
    kinds: frozenset[str] = frozenset({"lost", "self_retry", "late", "denied", "crash"})


@dataclass
class Outcome:
    """What the exploration saw."""

    states: int = 0
    schedules: int = 0
    ends: int = 0
    executions: int = 0
    #: What the store had and what the writers were told at each end.
    results: frozenset[tuple[frozenset[tuple[str, bytes]], tuple[Told, ...]]] = frozenset()
    violations: list[str] = field(default_factory=list)


class _Enough(Exception):
    pass


class Checker:
    """Explores everything from one start. `judge(objects, told)` says what is wrong with an end,
    `watch(before, after)` what is wrong with a step. `settled` names the objects that nobody
    changes or removes once they are there. The store's time is `store_ms`; what is there from the
    start is from time 0."""

    def __init__(
        self,
        objects: Objects,
        writers: tuple[Writer, ...],
        faults: Faults,
        judge: Callable[[Objects, tuple[Told, ...]], str | None],
        *,
        may_tick: bool = False,
        may_stand_still: bool = False,
        first_violation_only: bool = False,
        watch: Callable[[Objects, Objects], str | None] = lambda before, after: None,
        settled: Callable[[str], bool] | None = None,
        store_ms: int = FAR_MS,
    ) -> None:
        self._kinds = faults.kinds
        self._judge = judge
        self._watch = watch
        self._settled = settled
        # A read that may fail is a step of its own, though it need not wait for its turn.
        self._answers_at_once = "unread" not in faults.kinds
        self._store_ms = store_ms
        self._old = dict(objects)
        self._may_tick = may_tick
        self._may_stand_still = may_stand_still
        self._stop_early = first_violation_only
        self._contents: list[Objects] = []
        self._content_numbers: dict[frozenset[tuple[str, bytes]], int] = {}
        self._performed: dict[tuple[int, Operation], tuple[int, Any]] = {}
        self._histories: list[_History] = []
        self._numbers: dict[tuple[str, tuple[Told, ...], Any], int] = {}
        self._following: dict[tuple[int, Any], list[tuple[_Answered, int]]] = {}
        self._recovered: dict[tuple[str, tuple[Told, ...]], list[tuple[_Answered, int]]] = {}
        self._paths: dict[_State, int] = {}
        self._judged: dict[tuple[int, tuple[Told, ...]], str | None] = {}
        self._watched: dict[tuple[int, int], str | None] = {}
        self._trace: list[str] = []
        self.outcome = Outcome()
        first = self._content(objects)
        self._start = _State(
            first,
            tuple(self._begin(writer, (), first) for writer in writers),
            (),
            faults.limit,
            0,
        )

    def explore(self) -> Outcome:
        with suppress(_Enough):
            self.outcome.schedules = self._count(self._start)
        self.outcome.states = len(self._paths)
        self.outcome.results = frozenset(
            (frozenset(self._contents[number].items()), told) for number, told in self._judged
        )
        return self.outcome

    def _content(self, objects: Objects) -> int:
        key = frozenset(objects.items())
        if key not in self._content_numbers:
            self._content_numbers[key] = len(self._contents)
            self._contents.append(dict(objects))
        return self._content_numbers[key]

    def _perform(self, objects: int, operation: Operation) -> tuple[int, Any]:
        key = objects, operation
        if key not in self._performed:
            changed = dict(self._contents[objects])
            reply = perform(changed, operation, self._modified_ms)
            self._check_settled(self._contents[objects], operation)
            self._performed[key] = self._content(changed), reply
        return self._performed[key]

    def _check_settled(self, before: Objects, operation: Operation) -> None:
        """What is settled stays. A job may discard a file of its own that nothing names."""
        verb, key, data = operation
        is_broken = (verb == "write" and before.get(key, data) != data) or (
            verb == "delete" and key in self._old
        )
        assert not (is_broken and self._settled is not None and self._settled(key)), operation[:2]

    def _modified_ms(self, key: str, data: bytes) -> int:
        return 0 if self._old.get(key) == data else self._store_ms

    def _waits(self, objects: Objects, operation: Operation) -> bool:
        """False if the operation is the same before and after any step of another writer."""
        verb, key, _ = operation
        is_settled = verb == "write" or (verb == "read" and key in objects)
        return not (is_settled and self._settled is not None and self._settled(key))

    def _run(
        self, writer: Writer, replies: tuple[Any, ...], told: tuple[Told, ...], objects: Objects
    ) -> tuple[_Answered, int]:
        """Run the writer's code on these replies, and give the number of where that leads."""
        answered: list[tuple[str, bytes]] = []

        def at_once(operation: Operation) -> Any:
            is_read = operation.verb == "read" and self._answers_at_once
            if not is_read or self._waits(objects, operation):
                return NOT_YET
            answered.append((operation.key, objects[operation.key]))
            return objects[operation.key]

        heard: list[Told] = []
        waits_for = None
        store = ReplayStore(replies, at_once, self._store_ms)
        try:
            writer.program(store, heard)
        except Suspend as suspended:
            waits_for = suspended.operation
        self.outcome.executions += 1
        got = tuple(store.replies)
        key = writer.name, told, len(self._histories) if self._settled is None else got
        if key not in self._numbers:
            self._numbers[key] = len(self._histories)
            self._histories.append(_History(writer, got, waits_for, told, tuple(heard)))
        return tuple(answered), self._numbers[key]

    def _known(
        self,
        runs: list[tuple[_Answered, int]],
        number: int,
        run: Callable[[Objects], tuple[_Answered, int]],
    ) -> int:
        """Where a writer gets to, with the answers that it gets at once from these objects."""
        if self._settled is None and runs:
            return runs[0][1]
        objects = self._contents[number]
        for answered, history in runs:
            waits_for = self._histories[history].waits_for
            is_read = waits_for is not None and waits_for.verb == "read" and self._answers_at_once
            if all(objects.get(key) == data for key, data in answered) and (
                waits_for is None or not is_read or self._waits(objects, waits_for)
            ):
                return history
        runs.append(run(objects))
        return runs[-1][1]

    def _begin(self, writer: Writer, told: tuple[Told, ...], objects: int) -> int:
        runs = self._recovered.setdefault((writer.name, told), [])
        return self._known(runs, objects, partial(self._run, writer, (), told))

    def _follow(self, history: int, reply: Any, objects: int) -> int:
        runs = self._following.setdefault((history, reply), [])
        old = self._histories[history]
        replies = (*old.replies, reply)
        return self._known(runs, objects, partial(self._run, old.writer, replies, old.told_before))

    def _count(self, state: _State) -> int:
        known = self._paths.get(state)
        if known is not None:
            return known
        waiting = [self._histories[number].waits_for for number in state.histories]
        paths = 0
        if all(operation is None for operation in waiting):
            self._end(state)
            paths = 1
        for step, following in self._steps(state, waiting):
            self._trace.append(step)
            self._check_step(state.objects, following.objects)
            paths += self._count(following)
            self._trace.pop()
        self._paths[state] = paths
        return paths

    def _end(self, state: _State) -> None:
        told = tuple(one for number in state.histories for one in self._histories[number].told)
        self.outcome.ends += 1
        key = state.objects, told
        if key not in self._judged:
            self._judged[key] = self._judge(self._contents[state.objects], told)
        self._blame(self._judged[key])

    def _check_step(self, before: int, after: int) -> None:
        key = before, after
        if before != after and key not in self._watched:
            self._watched[key] = self._watch(self._contents[before], self._contents[after])
            self._blame(self._watched[key])

    def _blame(self, wrong: str | None) -> None:
        if wrong is not None:
            self.outcome.violations.append("\n  ".join([wrong, *self._trace]))
            if self._stop_early:
                raise _Enough

    def _steps(
        self, state: _State, waiting: list[Operation | None]
    ) -> Iterator[tuple[str, _State]]:
        """What can happen next. If an operation need not wait, that one happens."""
        ready = self._ready(state, waiting)
        if ready is not None:
            yield from self._steps_of(state, *ready)
            return
        for index, operation in enumerate(waiting):
            name = self._histories[state.histories[index]].writer.name
            if operation is not None and self._may_run(state, index):
                yield from self._steps_of(state, index, operation)
            if state.faults_left and "crash" in self._kinds:
                crashed = self._histories[state.histories[index]]
                if crashed.writer.recovery is not None:
                    anew = self._begin(crashed.writer.recovery, crashed.told, state.objects)
                    yield (
                        f"{name}: crash",
                        state._replace(
                            histories=_with(state.histories, index, anew),
                            faults_left=state.faults_left - 1,
                        ),
                    )
        for index, operation in enumerate(state.under_way):
            objects, _ = self._perform(state.objects, operation)
            rest = state.under_way[:index] + state.under_way[index + 1 :]
            yield f"lands: {operation.key}", state._replace(objects=objects, under_way=rest)
        if self._may_tick and not state.now_ms and self._all_rest(state, waiting):
            # No put is on its way for days: what has not landed by now never will.
            yield "tick", state._replace(now_ms=TICK_MS, under_way=())

    def _ready(
        self, state: _State, waiting: list[Operation | None]
    ) -> tuple[int, Operation] | None:
        """An operation that need not wait, and whose it is."""
        if self._settled is not None:
            objects = self._contents[state.objects]
            for index, operation in enumerate(waiting):
                if operation is not None and not self._waits(objects, operation):
                    return index, operation
        return None

    def _steps_of(
        self, state: _State, index: int, operation: Operation
    ) -> Iterator[tuple[str, _State]]:
        name = self._histories[state.histories[index]].writer.name
        for how, reply, objects, under_way, cost in self._replies(state, operation):
            following = self._follow(state.histories[index], reply, objects)
            yield (
                f"{name}: {operation.verb} {operation.key} {how}",
                _State(
                    objects,
                    _with(state.histories, index, following),
                    under_way,
                    state.faults_left - cost,
                    state.now_ms,
                ),
            )

    def _replies(
        self, state: _State, operation: Operation
    ) -> Iterator[tuple[str, Any, int, tuple[Operation, ...], int]]:
        """How, what the writer is told, the objects then, the puts under way, the faults spent."""
        if operation.key == REST:
            yield "", state.now_ms, state.objects, state.under_way, 0
            return
        objects, reply = self._perform(state.objects, operation)
        yield "", reply, objects, state.under_way, 0
        if not state.faults_left:
            return
        if operation.verb == "create":
            if "lost" in self._kinds:
                yield "reply lost", Created.UNKNOWN, objects, state.under_way, 1
            if "self_retry" in self._kinds and reply is Created.YES:
                yield "told it exists", Created.EXISTS, objects, state.under_way, 1
            if "late" in self._kinds:
                later = (*state.under_way, operation)
                yield "is late", Created.UNKNOWN, state.objects, later, 1
        if operation.verb in ("create", "write") and "denied" in self._kinds:
            yield "is denied", REFUSED, state.objects, state.under_way, 1
        if operation.verb == "read" and "unread" in self._kinds:
            yield "fails", REFUSED, state.objects, state.under_way, 1

    def _may_run(self, state: _State, index: int) -> bool:
        return state.now_ms > 0 or not self._histories[state.histories[index]].writer.after_tick

    def _all_rest(self, state: _State, waiting: list[Operation | None]) -> bool:
        """Time passes only where nobody is in the middle of something: an attempt is assumed to
        take less than half of the manifest's retention. Unless writers may stand still anywhere,
        like a machine that is suspended and does not notice."""
        return self._may_stand_still or all(
            operation is None or operation.key == REST or not self._may_run(state, index)
            for index, operation in enumerate(waiting)
        )


def _with(numbers: tuple[int, ...], index: int, number: int) -> tuple[int, ...]:
    return (*numbers[:index], number, *numbers[index + 1 :])
