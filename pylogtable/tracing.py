"""Spans of OpenTelemetry, if the program has set up a tracer provider. Otherwise nothing is done.

A program with a provider has imported `opentelemetry.trace`, so this module never imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar


class Records(Protocol):
    """A batch of records, such as Arrow's."""

    @property
    def num_rows(self) -> int: ...


Batch = TypeVar("Batch", bound=Records)

#: Adds attributes to a span.
Note = Callable[..., None]

#: Attributes that OpenTelemetry has a name for. The others are `pylogtable.*`.
_NAMES = {
    "topic": "messaging.destination.name",
    "records": "messaging.batch.message_count",
    "does": "messaging.operation.type",
}


@contextmanager
def span(name: str, **attributes: object) -> Iterator[Note]:
    """The body is a span `pylogtable.<name>`; an error of it is recorded. It yields a function that
    adds attributes.

    >>> with span("append", topic="orders", does="send") as note:
    ...     note(version=12)
    """
    tracer = _tracer()
    if tracer is None:
        yield _ignore
        return
    with tracer.start_as_current_span(
        f"pylogtable.{name}", attributes=_named(attributes)
    ) as started:
        yield lambda **more: started.set_attributes(_named(more))


def spanned(name: str, batches: Iterator[Batch], **attributes: object) -> Iterator[Batch]:
    """The same batches of records. A span lasts from the first to the last of them. It belongs to
    the caller of this function, whoever takes the batches."""
    tracer = _tracer()
    if tracer is None:
        return batches
    parent = sys.modules["opentelemetry.context"].get_current()

    def begin() -> Any:
        return tracer.start_span(f"pylogtable.{name}", parent, attributes=_named(attributes))

    return _spanned(begin, batches)


def _spanned(begin: Callable[[], Any], batches: Iterator[Batch]) -> Iterator[Batch]:
    # It is never the current span: that would be the taker's too, between two batches.
    trace: Any = sys.modules["opentelemetry.trace"]
    started, records = begin(), 0
    try:
        for batch in batches:
            records += batch.num_rows
            yield batch
    except Exception as error:
        started.record_exception(error)
        started.set_status(trace.Status(trace.StatusCode.ERROR, f"{type(error).__name__}: {error}"))
        raise
    finally:
        started.set_attributes(_named({"records": records}))
        started.end()


def _tracer() -> Any:
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    provider = trace.get_tracer_provider()
    is_set_up = not isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider))
    return provider.get_tracer("pylogtable") if is_set_up else None


def _named(attributes: Mapping[str, object]) -> dict[str, object]:
    given = {_NAMES.get(name, f"pylogtable.{name}"): value for name, value in attributes.items()}
    return {"messaging.system": "pylogtable", **given}


def _ignore(**more: object) -> None:
    """Nobody looks at this span."""
