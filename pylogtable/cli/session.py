"""What every command shares: which store, how to answer, and how to open what was named.

A store is named by an argument, by `--store`, or by `PYLOGTABLE_STORE`. A topic is named by its
name in that store; with a slash in it, it is a topic's own path or URL, and names its store too,
since no topic's name has one.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

import pylogtable
from pylogtable import InvalidRequestError, LogTableError, TopicNotFoundError

if TYPE_CHECKING:
    from pylogtable import Store, Topic

T = TypeVar("T")

STORE_VARIABLE = "PYLOGTABLE_STORE"


@dataclass
class Session:
    """The shared options of one run of the program."""

    store: str | None = None
    storage_options: str | None = None
    output: str = "text"
    verbose: bool = False

    @property
    def is_json(self) -> bool:
        return self.output == "json"

    def store_url(self, argument: str | None = None) -> str:
        """The store's address; an argument comes before the environment, and bars `--store`."""
        if argument is not None and self.store is not None:
            raise click.UsageError("the store is given twice: as an argument and by --store")
        url = argument or self.store or os.environ.get(STORE_VARIABLE)
        if not url:
            raise click.UsageError(
                f"no store is named: give its path or URL, by --store or in {STORE_VARIABLE}"
            )
        return url

    def options(self) -> dict[str, Any] | None:
        """The storage options; they may hold secrets, so the message does not repeat them."""
        if self.storage_options is None:
            return None
        try:
            options = json.loads(self.storage_options)
        except ValueError as error:
            raise InvalidRequestError(f"--storage-options is not JSON: {error}") from error
        if not isinstance(options, dict):
            raise InvalidRequestError("--storage-options must be a JSON object")
        return options

    def open_store(self, argument: str | None = None) -> Store:
        return pylogtable.open(self.store_url(argument), storage_options=self.options())

    def locate(self, topic: str) -> tuple[Store, str]:
        """The store and the name that a TOPIC argument means."""
        if "/" not in topic:
            return self.open_store(), topic
        url, name = pylogtable.split_topic_url(topic)
        return self.open_store(url), name

    def open_topic(self, topic: str) -> Topic:
        store, name = self.locate(topic)
        with suggesting(store, name):
            return store.topic(name)

    def open_topics(self, topics: Sequence[str]) -> Iterator[Topic]:
        """Those named, or all of the store."""
        if topics:
            for topic in topics:
                yield self.open_topic(topic)
        else:
            store = self.open_store()
            for name in all_topics(store):
                yield store.topic(name)

    def each_topic(
        self, topics: Sequence[str], act: Callable[[Topic], T]
    ) -> Iterator[tuple[str, Callable[[], T]]]:
        """The name of each topic named, or of all, and what does `act` with it: one that cannot be
        opened shows when it is its turn, and does not keep the others from theirs."""
        places = list(topics) or all_topics(self.open_store())
        for place in places:
            yield place, partial(lambda place: act(self.open_topic(place)), place)


def all_topics(store: Store) -> list[str]:
    """Every topic's name. A prefix of an object store always "exists": an empty one is a wrong
    address."""
    names = store.topics()
    if not names:
        raise InvalidRequestError(f"there is no topic below {store.url}")
    return names


@contextmanager
def suggesting(store: Store, name: str) -> Iterator[None]:
    """Say which topic may have been meant, where there is none of this name."""
    try:
        yield
    except TopicNotFoundError as error:
        names = store.topics()
        near = difflib.get_close_matches(name, names, n=1)
        if near:
            hint = f"did you mean {near[0]!r}?"
        elif names:
            shown = ", ".join(names[:5])
            hint = f"there is {shown}{' and others' if len(names) > 5 else ''}"
        else:
            hint = (
                "there is none at all: check the address, or make it with "
                f"'pylogtable topics create {name}'"
            )
        raise TopicNotFoundError(f"there is no topic {name!r} below {store.url}; {hint}") from error


def session(context: click.Context) -> Session:
    return context.find_root().ensure_object(Session)


def shared_options() -> list[click.Parameter]:
    """Given before or after the command's name; the last one counts."""
    return [
        click.Option(
            ["--store", "-s", "store_option"],
            metavar="URL",
            help=f"The store: a path or URL.  [env: {STORE_VARIABLE}]",
            expose_value=False,
            callback=_remember("store"),
        ),
        click.Option(
            ["--storage-options"],
            metavar="JSON",
            help="A JSON object for the store's client, such as its endpoint_url.",
            expose_value=False,
            callback=_remember("storage_options"),
        ),
        click.Option(
            ["--output"],
            type=click.Choice(["text", "json"]),
            help="For people, or for programs.  [default: text]",
            expose_value=False,
            callback=_remember("output"),
        ),
        click.Option(
            ["--verbose"],
            is_flag=True,
            default=None,
            help="Show where an error came from.",
            expose_value=False,
            callback=_remember("verbose"),
        ),
    ]


def _remember(field: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None:
            setattr(session(context), field, value)

    return callback


def complete_topics(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Topic names for the shell; an error is no answer."""
    try:
        names = session(context).open_store().topics()
    except (LogTableError, click.UsageError):
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_groups(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of consumer groups for the shell."""
    try:
        names = session(context).open_store().groups()
    except (LogTableError, click.UsageError):
        return []
    return [name for name in names if name.startswith(incomplete)]
