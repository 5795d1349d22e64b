"""What all commands share: the store, the output format, and how topics are opened.

A store is given as an argument, by `--store`, or by the variable `PYLOGTABLE_STORE`. A topic is
given by its name in that store. With a slash in it, it is the topic's own path or URL, which
contains the store too; topic names have no slashes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

import pylogtable
from pylogtable import InvalidRequestError, LogTableError, TopicNotFoundError
from pylogtable.cli.did_you_mean import did_you_mean
from pylogtable.cli.repeated_options import repeated
from pylogtable.cli.status import FAILED

if TYPE_CHECKING:
    from pylogtable import Store, Topic

STORE_VARIABLE = "PYLOGTABLE_STORE"


@dataclass
class Session:
    """The shared options of one run, and whether something in it failed. A command that answers a
    question sets another `status_if_store_fails`: then the answer is not known."""

    store: str | None = None
    storage_options: str | None = None
    output: str = "text"
    verbose: bool = False
    has_failed: bool = False
    status_if_store_fails: int = FAILED
    #: The shared options that were given so far.
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def is_json(self) -> bool:
        """True with `--output json`."""
        return self.output == "json"

    def store_url(self, argument: str | None = None) -> str:
        """The store's path or URL: the argument, `--store`, or the environment variable."""
        if argument is not None and self.store is not None:
            raise click.UsageError("the store is given twice: as an argument and by --store")
        given = self.store if argument is None else argument
        url = os.environ.get(STORE_VARIABLE, "") if given is None else given
        if not url:
            # An empty argument, such as "$UNSET", never means the store of the environment.
            problem = "no store is given" if given is None else "the store given is empty"
            raise click.UsageError(
                f"{problem}: pass its path or URL with --store, or set {STORE_VARIABLE}"
            )
        return url

    def parsed_storage_options(self) -> dict[str, Any] | None:
        """`--storage-options` as a dict."""
        return _storage_options(self.storage_options, "--storage-options")

    def open_store(self, argument: str | None = None) -> Store:
        """The store that the command is about."""
        url = self.store_url(argument)
        return pylogtable.open(url, storage_options=self.parsed_storage_options())

    def open_other_store(self, url: str, storage_options: str | None, option: str) -> Store:
        """Another store, with the storage options that `option` gave, or else the shared ones."""
        if not url:
            raise click.UsageError("the other store given is empty")
        options = self.parsed_storage_options()
        if storage_options is not None:
            options = _storage_options(storage_options, option)
        return pylogtable.open(url, storage_options=options)

    def locate(self, topic: str) -> tuple[Store, str]:
        """The store and the topic name that a TOPIC argument means."""
        if "/" not in topic:
            return self.open_store(), topic
        if self.store is not None:
            raise click.UsageError(
                f"the store is given twice: {topic!r} has a slash, so it is the path or URL of a "
                "topic, and --store gives a store as well"
            )
        url, name = pylogtable.split_topic_url(topic)
        return self.open_store(url), name

    def open_topic(self, topic: str) -> Topic:
        """The topic that a TOPIC argument means."""
        store, name = self.locate(topic)
        with suggest_topics(store, name):
            return store.topic(name)

    def topic_arguments(self, topics: Sequence[str]) -> list[str]:
        """The TOPIC arguments as given, or the names of all topics of the store."""
        return list(topics) or topic_names(self.open_store())


def _storage_options(text: str | None, option: str) -> dict[str, Any] | None:
    """Error messages do not repeat the text: it may hold secrets."""
    if text is None:
        return None
    try:
        options = json.loads(text)
    except ValueError as error:
        raise InvalidRequestError(f"{option} is not JSON: {error}") from error
    if not isinstance(options, dict):
        raise InvalidRequestError(f"{option} must be a JSON object")
    return options


def topic_names(store: Store) -> list[str]:
    """The names of all topics. Raises if there are none: every prefix of an object store "exists",
    so an empty store is most likely a wrong address."""
    names = store.topics()
    if not names:
        raise InvalidRequestError(f"there is no topic in {store.url}")
    return names


@contextmanager
def suggest_topics(store: Store, name: str) -> Iterator[None]:
    """If the topic does not exist, name a similar one in the error."""
    try:
        yield
    except TopicNotFoundError as error:
        names = store.topics()
        hint = (
            did_you_mean(name, names)
            if names
            else "the store has no topics: check its address, or create the topic with "
            f"'pylogtable topics create {name}'"
        )
        raise TopicNotFoundError(f"there is no topic {name!r} in {store.url}; {hint}") from error


def current_session(context: click.Context) -> Session:
    """The session that a command runs in."""
    return context.find_root().ensure_object(Session)


def shared_options() -> list[click.Parameter]:
    """The options that every command has, before or after its name."""
    return [
        click.Option(
            ["--store", "-s", "store_option"],
            metavar="URL",
            help=f"Path or URL of the store.  [env: {STORE_VARIABLE}]",
            expose_value=False,
            callback=_save_as("store"),
        ),
        click.Option(
            ["--storage-options"],
            metavar="JSON",
            help="JSON object for the client of the store, such as its endpoint_url.",
            expose_value=False,
            callback=_save_as("storage_options"),
        ),
        click.Option(
            ["--output"],
            type=click.Choice(["text", "json"]),
            help="text for people, json for programs.  [default: text]",
            expose_value=False,
            callback=_save_as("output"),
        ),
        click.Option(
            ["--verbose"],
            is_flag=True,
            default=None,
            help="Show the traceback of an error.",
            expose_value=False,
            callback=_save_as("verbose"),
        ),
    ]


def _save_as(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Saves an option. It may be given before and after the name of a command, but not with
    different values: one of them would be ignored."""

    def callback(context: click.Context, option: click.Parameter, value: Any) -> None:
        if value is None:
            return
        session = current_session(context)
        earlier = session.given.setdefault(name, value)
        if earlier != value:
            raise click.UsageError(repeated(option, [earlier, value]), context)
        setattr(session, name, value)

    return callback


def _complete_with(
    names: Callable[[Store], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """A completion of names in the store; it offers nothing if the store cannot be read."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        try:
            found = names(current_session(context).open_store())
        except (LogTableError, click.UsageError):
            return []
        return [name for name in found if name.startswith(incomplete)]

    return complete


complete_topics = _complete_with(lambda store: store.topics())
complete_groups = _complete_with(lambda store: store.groups())
