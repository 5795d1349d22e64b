"""What all commands share: the store, the output format, and how topics are opened.

A store is given as an argument, by `--store`, or by the variable `PYLOGTABLE_STORE`. A topic is
given by its name in that store. With a slash in it, it is the topic's own path or URL, which
contains the store too; topic names have no slashes.

The exit status of the program:

| status | meaning                                                                 |
|--------|-------------------------------------------------------------------------|
| 0      | all went well                                                           |
| 1      | something failed; each failure is one line on standard error            |
| 2      | wrong usage                                                             |
| 3      | `verify`, `compare`, `prove`: the store failed; the answer is not known |
| 130    | Ctrl-C                                                                  |
| 141    | the reader of standard output went away, as in `consume t | head -n 1`  |
| 143    | SIGTERM                                                                 |
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

import pylogtable
from pylogtable import InvalidRequestError, TopicNotFoundError
from pylogtable.arguments import did_you_mean, parse_storage_options

if TYPE_CHECKING:
    from pylogtable import Store, Topic

STORE_VARIABLE = "PYLOGTABLE_STORE"
#: What is certainly meant as a path or a URL, and not as the name of a topic.
_PLACE = re.compile(r"~?/|\.\.?/|~[^/]*/|[A-Za-z][A-Za-z0-9+.-]*:")
FAILED, WRONG_USAGE, NOT_KNOWN = 1, 2, 3
INTERRUPTED, BROKEN_PIPE, TERMINATED = 130, 141, 143


@dataclass
class Session:
    """The shared options of one run, and whether something in it failed. A command that answers a
    question sets another `status_if_store_fails`: then the answer is not known."""

    store: str | None = None
    storage_options: str | None = None
    output: str = "text"
    verbose: bool = False
    log_level: str = "warning"
    log_format: str = "text"
    has_failed: bool = False
    status_if_store_fails: int = FAILED
    #: How often a program that follows says how far it is, if nobody watches it on a terminal.
    line_seconds: float = 60.0
    #: How often a mirror that follows several topics tries those again that have failed, and looks
    #: for new ones.
    look_seconds: float = 30.0
    #: The shared options that were given so far.
    given: dict[str, Any] = field(default_factory=dict)
    #: The TOPIC arguments that were looked for so far.
    _located: set[str] = field(default_factory=set)

    @property
    def is_json(self) -> bool:
        """True with `--output json`."""
        return self.output == "json"

    @property
    def logs_json(self) -> bool:
        """True with `--log-format json`: then every line on standard error is a JSON object."""
        return self.log_format == "json"

    def seconds_between_lines(self, options: Mapping[str, Any]) -> float:
        """How often a command with these options tells people how far it is."""
        return self.line_seconds if options["follow"] and not self.is_json else math.inf

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

    def store_url_if_given(self, argument: str | None = None) -> str | None:
        """The same, or None if nothing names a store."""
        is_named = argument is not None or self.store is not None or STORE_VARIABLE in os.environ
        return self.store_url(argument) if is_named else None

    def parsed_storage_options(self) -> dict[str, Any] | None:
        """`--storage-options` as a dict."""
        return _parsed(self.storage_options, "--storage-options")

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
            options = _parsed(storage_options, option)
        return pylogtable.open(url, storage_options=options)

    @property
    def only_topic(self) -> str | None:
        """The TOPIC argument, if this run was about a single one so far."""
        return next(iter(self._located)) if len(self._located) == 1 else None

    def locate(self, topic: str) -> tuple[Store, str]:
        """The store and the topic name that a TOPIC argument means."""
        self._located.add(topic)
        if "/" not in topic:
            return self.open_store(), topic
        if self.store is not None:
            raise click.UsageError(
                f"the store is given twice: {topic!r} has a slash, so it is the path or URL of a "
                "topic, and --store gives a store as well"
            )
        if os.environ.get(STORE_VARIABLE) and not _PLACE.match(topic):
            raise click.UsageError(
                f"{topic!r} is no name of a topic in {os.environ[STORE_VARIABLE]}, which "
                f"{STORE_VARIABLE} names: a name has no slash. For the topic at that path write "
                f"./{topic}"
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


def _parsed(storage_options: str | None, option: str) -> dict[str, Any] | None:
    try:
        return parse_storage_options(storage_options, option)
    except InvalidRequestError as error:
        raise click.UsageError(str(error)) from None
