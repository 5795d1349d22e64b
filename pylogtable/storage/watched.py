"""Notes each request to a store for those who listen to `observe`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from pylogtable.observe import Kind, Outcome, Request, is_observed, note_request
from pylogtable.runtime import Runtime
from pylogtable.storage.base import Created, ObjectStore
from pylogtable.storage.replies import outcome_of
from pylogtable.storage.wire import Wire

Given = ParamSpec("Given")
Result = TypeVar("Result")
Own = TypeVar("Own", bound=ObjectStore)

_KINDS: Mapping[str, Kind] = {
    "get": "get",
    "info": "head",
    "put": "put",
    "page": "list",
    "delete": "delete",
    "delete_together": "delete",
    "copy": "copy",
    "begin_upload": "put",
    "put_part": "put",
    "end_upload": "put",
    "drop_upload": "delete",
}
_CREATED: Mapping[Created, Outcome] = {
    Created.YES: "ok",
    Created.EXISTS: "exists",
    Created.UNKNOWN: "unanswered",
}


class Watch:
    """One request: it is made in the block, and noted when the block ends."""

    def __init__(self, kind: Kind = "get", place: str = "") -> None:
        self.kind = kind
        self.place = place
        self.outcome: Outcome = "ok"
        self._monotonic = Runtime().monotonic

    def __enter__(self) -> Watch:
        self._began = self._monotonic()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        seconds = self._monotonic() - self._began
        if error is not None:
            self.outcome = outcome_of(error)
        note_request(Request(self.kind, seconds, self.outcome), self.place)


class WatchedWire:
    """A wire that says which request is made on it. A copy that takes several requests is one."""

    def __init__(self, wire: Wire, watch: Watch) -> None:
        self._wire = wire
        self._watch = watch

    def __getattr__(self, verb: str) -> Any:
        method, kind = getattr(self._wire, verb), _KINDS.get(verb)
        if kind is None:
            return method

        def ask(path: Any, *args: Any, **more: Any) -> Any:
            self._watch.kind = kind
            self._watch.place = path if isinstance(path, str) else path[0]
            return method(path, *args, **more)

        return ask


def watch(kind: Kind, place: str) -> AbstractContextManager[object]:
    """The block is a request of this kind, if anybody wants to know."""
    return Watch(kind, place) if is_observed() else nullcontext()


def watched(
    kind: Kind,
) -> Callable[
    [Callable[Concatenate[Own, str, Given], Result]],
    Callable[Concatenate[Own, str, Given], Result],
]:
    """Makes each call of a method of a store a request of this kind."""

    def decorate(
        method: Callable[Concatenate[Own, str, Given], Result],
    ) -> Callable[Concatenate[Own, str, Given], Result]:
        @wraps(method)
        def call(store: Own, /, key: str, *args: Given.args, **kwargs: Given.kwargs) -> Result:
            if not is_observed():
                return method(store, key, *args, **kwargs)
            with Watch(kind, f"{store.url}/{key}") as request:
                found = method(store, key, *args, **kwargs)
                if isinstance(found, Created):
                    request.outcome = _CREATED[found]
                elif found is None and kind in {"get", "head"}:
                    request.outcome = "missing"
            return found

        return call  # type: ignore[return-value]  # mypy wants `key` by position only

    return decorate
