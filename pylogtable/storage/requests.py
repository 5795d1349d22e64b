"""Sends the requests of a storage client: each within a time, and again if it was not served.

This is the only layer that repeats requests. Clients are told not to (`storage/wire.py`): retries
of several layers multiply, and a retry that nobody sees makes a refusal look like the first answer
[STORE-3]. Put-if-absent is never repeated here; the commit protocol decides about that. Only if the
store has refused expired credentials, and new ones can be asked for, a request is sent with those.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias, cast

from pylogtable.observe import is_observed
from pylogtable.operation import Operation, Silence, current_operation
from pylogtable.runtime import Runtime
from pylogtable.storage.base import UnansweredError
from pylogtable.storage.client import Client
from pylogtable.storage.replies import is_transient, refuses_connections
from pylogtable.storage.watched import Watch, WatchedWire
from pylogtable.storage.wire import CONCURRENCY, Wire

#: Sends one request on the wire given.
Send: TypeAlias = Callable[[Wire], Coroutine[Any, Any, Any]]

#: A store that has never answered is given up sooner: its address is probably wrong.
FIRST_CONTACT_SECONDS = 30.0
#: And sooner still if nothing listens there.
REFUSED_CONTACT_SECONDS = 10.0
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 5.0
#: The time for a request grows with the bytes that are on their way, its own and those beside it.
#: No usable line is slower than this.
SLOWEST_BYTES_PER_SECOND = 500_000


class Requests:
    """The requests of one client. They run in the client's own event loop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._runtime = Runtime()
        #: How many bytes are on their way now. Only the event loop changes it.
        self._bytes_under_way = 0.0

    def once(self, send: Send, size_bytes: float = 0) -> Any:
        """The reply to a request that is sent exactly once. Raises what the client raises, and
        `UnansweredError` if it was not sent, because the store has been silent for too long."""
        wire, operation = self._client.wire, current_operation()
        silence = operation.silence_of(self._client)
        _check_not_silent(silence)
        # The other half is for those who look what became of it.
        seconds = min(self._request_seconds(), self._budget(operation) / 2)

        async def attempt() -> Any:
            generation = self._client.generation
            try:
                return await self._attempt(send, wire, silence, seconds, size_bytes)
            except Exception as error:
                # It was refused before anything was done, so this is still the first answer.
                if not self._client.renew(error, generation):
                    raise
            return await self._attempt(send, wire, silence, seconds, size_bytes)

        return _run(wire, attempt())

    def patiently(self, send: Send, size_bytes: float = 0) -> Any:
        """The reply to a request that may be sent several times, until the store serves it."""
        wire = self._client.wire
        return _run(wire, self._repeat(send, wire, current_operation(), size_bytes))

    def all_patiently(self, sends: Sequence[Send]) -> list[Any]:
        """The reply to each of these requests, or its error. They are sent at once, in one call:
        that takes half of the processor time that a thread for each takes."""
        wire, operation = self._client.wire, current_operation()

        async def all_at_once() -> list[Any]:
            # The time that a request waits for a connection is not the store's.
            free = asyncio.Semaphore(CONCURRENCY)

            async def one(send: Send) -> Any:
                async with free:
                    return await self._repeat(send, wire, operation, 0)

            return await asyncio.gather(*map(one, sends), return_exceptions=True)

        replies: list[Any] = _run(wire, all_at_once())
        return replies

    async def _repeat(self, send: Send, wire: Wire, operation: Operation, size_bytes: float) -> Any:
        silence = operation.silence_of(self._client)
        _check_not_silent(silence)
        limit = budget = self._budget(operation)
        if not self._client.has_answered:
            limit = min(limit, FIRST_CONTACT_SECONDS)
        began = self._runtime.monotonic()
        seconds = min(self._request_seconds(), budget - silence.seconds(began))
        may_renew = True
        for tries in itertools.count(1):
            sent, generation = self._runtime.monotonic(), self._client.generation
            try:
                return await self._attempt(send, wire, silence, seconds, size_bytes)
            except Exception as error:
                if may_renew and self._client.renew(error, generation):
                    may_renew = False
                    continue
                if not is_transient(error):
                    raise
                failure = error
            now = self._runtime.monotonic()
            # Others may have been answered meanwhile, so the silence may be shorter than this wait.
            waited = max(now - began, silence.seconds(now))
            if not self._client.has_answered and refuses_connections(failure):
                limit = min(limit, REFUSED_CONTACT_SECONDS)
            longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**tries)
            pause = longest * (1 + self._runtime.chance()) / 2
            if waited + pause + (now - sent) > limit:
                silence.given_up = (
                    f"{tries} {'try' if tries == 1 else 'tries'} in {waited:.0f} s, the last one: "
                    f"{self._client.explain(failure)}"
                )
                if not self._client.has_answered:
                    silence.given_up += "; check the address, and whether the server runs"
                raise UnansweredError(silence.given_up) from self._client.shown(failure)
            await asyncio.sleep(pause)
            seconds = min(seconds, limit - waited - pause)
        raise AssertionError("an endless loop ended")

    async def _attempt(
        self, send: Send, wire: Wire, silence: Silence, seconds: float, size_bytes: float
    ) -> Any:
        if not is_observed():
            return await self._answered(send(wire), silence, seconds, size_bytes)
        with Watch() as watch:
            request = send(cast("Wire", WatchedWire(wire, watch)))
            return await self._answered(request, silence, seconds, size_bytes)

    async def _answered(
        self, request: Coroutine[Any, Any, Any], silence: Silence, seconds: float, size_bytes: float
    ) -> Any:
        silence.begin(self._runtime.monotonic())
        try:
            reply = await self._in_time(request, seconds, size_bytes)
        except Exception as error:
            if not is_transient(error):
                self._note_answer(silence)
            raise
        self._note_answer(silence)
        return reply

    async def _in_time(
        self, request: Coroutine[Any, Any, Any], seconds: float, size_bytes: float
    ) -> Any:
        """The reply to a request. It gets these seconds, and the time that its bytes need beside
        all others. How many there are is known only when they are under way."""
        began = self._runtime.monotonic()
        task = asyncio.ensure_future(request)
        self._bytes_under_way += size_bytes
        most_bytes = 0.0
        try:
            while not task.done():
                most_bytes = max(most_bytes, self._bytes_under_way if size_bytes else 0.0)
                allowed = seconds + most_bytes / SLOWEST_BYTES_PER_SECOND
                waited = self._runtime.monotonic() - began
                if waited >= allowed:
                    raise TimeoutError(f"no answer within {waited:.0f} s")
                await asyncio.wait({task}, timeout=allowed - waited)
            return task.result()
        finally:
            self._bytes_under_way -= size_bytes
            task.cancel()

    def _request_seconds(self) -> float:
        """How long a request may take. The first one of a process has longer: the client is made in
        the same time, and on a busy machine that takes a while."""
        client = self._client
        return client.request_seconds if client.has_answered else client.patience_seconds

    def _budget(self, operation: Operation) -> float:
        """How long the store may be silent in this operation."""
        return min(self._client.patience_seconds, operation.limit_seconds)

    def _note_answer(self, silence: Silence) -> None:
        self._client.has_answered = True
        silence.end()


def _check_not_silent(silence: Silence) -> None:
    if silence.given_up is not None:
        raise UnansweredError(f"the store was given up after {silence.given_up}")


def _run(wire: Wire, coroutine: Coroutine[Any, Any, Any]) -> Any:
    from fsspec.asyn import sync

    return sync(wire.loop, lambda: coroutine)
