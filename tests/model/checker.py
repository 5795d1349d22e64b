"""Every interleaving of a few writers that run the real commit code, with faults as choices.

A writer is an ordinary function that uses a store. Its code is deterministic, so what it does next
follows from the replies it has had: to advance it by one operation it is run again from its start
with the replies so far, and stopped at the first operation that has no reply yet. What was found
is remembered, so each distinct history of a writer runs once. No thread is needed, and a state of
the whole (the objects, what each writer has been told, the puts still under way, the faults left)
can be compared with those seen before: two schedules that meet in the same state share their
future, which is explored once and counted for both.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from pylogtable.errors import StorageError
from pylogtable.storage.base import Created, ObjectInfo, ObjectStore

Objects = Mapping[str, bytes]

REST = "~rest"
DAY_MS = 86_400_000
#: How far the clock goes at the one tick there may be: past the manifest's retention.
TICK_MS = 8 * DAY_MS


class Operation(NamedTuple):
    verb: str
    key: str
    data: bytes = b""


class Refused:
    """The reply that is an error: nothing was done, and that is certain."""

    def __repr__(self) -> str:
        return "refused"


REFUSED = Refused()


class _Suspend(BaseException):
    def __init__(self, operation: Operation) -> None:
        self.operation = operation


class _ReplayStore(ObjectStore):
    """Answers from a list of replies, and suspends the writer when it is used up."""

    def __init__(self, replies: tuple[Any, ...]) -> None:
        self._replies = iter(replies)

    @property
    def url(self) -> str:
        return "model://t"

    @property
    def last_reply_ms(self) -> int:
        """No clock is ahead of it."""
        return 2**62

    def now_ms(self) -> int:
        return 2**62

    def below(self, prefix: str) -> ObjectStore:
        raise NotImplementedError

    def _ask(self, verb: str, key: str, data: bytes = b"") -> Any:
        for reply in self._replies:
            if reply is REFUSED:
                raise StorageError(f"refused: {verb} {key}")
            return reply
        raise _Suspend(Operation(verb, key, data))

    def read(self, key: str) -> bytes | None:
        found: bytes | None = self._ask("read", key)
        return found

    def create(self, key: str, data: bytes) -> Created:
        created: Created = self._ask("create", key, data)
        return created

    def write(self, key: str, data: bytes) -> None:
        self._ask("write", key, data)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return iter(self._ask("list", prefix))

    def list_folders(self) -> builtins.list[str]:
        raise NotImplementedError

    def delete(self, key: str) -> None:
        self._ask("delete", key)

    def open_output(self, key: str) -> AbstractContextManager[pa.NativeFile]:
        raise NotImplementedError

    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        raise NotImplementedError


class ObjectsStore(_ReplayStore):
    """A plain store over some objects, for looking at a state with the real code."""

    def __init__(self, objects: Objects) -> None:
        self._objects = dict(objects)

    def _ask(self, verb: str, key: str, data: bytes = b"") -> Any:
        return perform(self._objects, Operation(verb, key, data))


def perform(objects: dict[str, bytes], operation: Operation) -> Any:
    verb, key, data = operation
    if verb == "read":
        return objects.get(key)
    if verb == "create":
        if key in objects:
            return Created.EXISTS
        objects[key] = data
        return Created.YES
    if verb == "write":
        objects[key] = data
        return None
    if verb == "delete":
        objects.pop(key, None)
        return None
    assert verb == "list"
    return tuple(
        ObjectInfo(name, len(body), 0)
        for name, body in sorted(objects.items())
        if name.startswith(key)
    )


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
    violations: list[str] = field(default_factory=list)


class _Enough(Exception):
    pass


class Checker:
    """Explores everything from one start. `judge(objects, told)` says what is wrong with an end."""

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
    ) -> None:
        self._kinds = faults.kinds
        self._judge = judge
        self._may_tick = may_tick
        self._may_stand_still = may_stand_still
        self._stop_early = first_violation_only
        self._contents: list[Objects] = []
        self._content_numbers: dict[frozenset[tuple[str, bytes]], int] = {}
        self._performed: dict[tuple[int, Operation], tuple[int, Any]] = {}
        self._histories: list[_History] = []
        self._following: dict[tuple[int, Any], int] = {}
        self._recovered: dict[tuple[str, tuple[Told, ...]], int] = {}
        self._paths: dict[_State, int] = {}
        self._judged: dict[tuple[int, tuple[Told, ...]], str | None] = {}
        self._trace: list[str] = []
        self.outcome = Outcome()
        self._start = _State(
            self._content(objects),
            tuple(self._begin(writer, ()) for writer in writers),
            (),
            faults.limit,
            0,
        )

    def explore(self) -> Outcome:
        with suppress(_Enough):
            self.outcome.schedules = self._count(self._start)
        self.outcome.states = len(self._paths)
        self.outcome.executions = len(self._histories)
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
            reply = perform(changed, operation)
            self._performed[key] = self._content(changed), reply
        return self._performed[key]

    def _run(self, writer: Writer, replies: tuple[Any, ...], told: tuple[Told, ...]) -> int:
        """Run the writer's code on these replies, and give the number of where that leads."""
        heard: list[Told] = []
        waits_for = None
        try:
            writer.program(_ReplayStore(replies), heard)
        except _Suspend as suspended:
            waits_for = suspended.operation
        self._histories.append(_History(writer, replies, waits_for, told, tuple(heard)))
        return len(self._histories) - 1

    def _begin(self, writer: Writer, told: tuple[Told, ...]) -> int:
        key = writer.name, told
        if key not in self._recovered:
            self._recovered[key] = self._run(writer, (), told)
        return self._recovered[key]

    def _follow(self, history: int, reply: Any) -> int:
        key = history, reply
        if key not in self._following:
            old = self._histories[history]
            replies = (*old.replies, reply)
            self._following[key] = self._run(old.writer, replies, old.told_before)
        return self._following[key]

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
        wrong = self._judged[key]
        if wrong is not None:
            self.outcome.violations.append("\n  ".join([wrong, *self._trace]))
            if self._stop_early:
                raise _Enough

    def _steps(
        self, state: _State, waiting: list[Operation | None]
    ) -> Iterator[tuple[str, _State]]:
        for index, operation in enumerate(waiting):
            name = self._histories[state.histories[index]].writer.name
            if operation is not None and self._may_run(state, index):
                for how, reply, objects, under_way, cost in self._replies(state, operation):
                    following = self._follow(state.histories[index], reply)
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
            if state.faults_left and "crash" in self._kinds:
                crashed = self._histories[state.histories[index]]
                if crashed.writer.recovery is not None:
                    anew = self._begin(crashed.writer.recovery, crashed.told)
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
