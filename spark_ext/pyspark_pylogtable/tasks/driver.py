"""Errors of a task that the driver did not have: the executor lacks its variables, or its disk.

The driver opens a topic before any task starts. So a task that cannot is on a machine that was set
up in another way, and the error says how.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pylogtable import LogTableError, StorageError, TopicNotFoundError

#: Variables by which clients of stores find credentials and endpoints begin like this.
_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_", "FSSPEC_")

_HOW = (
    "as spark.executorEnv.<NAME> in the configuration of the session, or, where the platform "
    "refuses spark.executorEnv.*, as environment variables of the cluster"
)


def _variables() -> frozenset[str]:
    return frozenset(name for name in os.environ if name.startswith(_PREFIXES))


@dataclass(frozen=True)
class Driver:
    """The process that planned. It has the names of its variables, never their values."""

    variables: frozenset[str] = field(default_factory=_variables)

    @contextmanager
    def explaining(self, *urls: str, note: str = "") -> Iterator[None]:
        """Run a task's work on the topics, or the store, at these addresses. An error that comes
        from the place where it runs says so, and has `note` in it. Spark shows the whole chain of
        an error for every try of a task, so the chain ends here."""
        try:
            yield
        except (StorageError, TopicNotFoundError) as error:
            for url in urls:
                check_shared(url)
            if (hint := self._hint(error, urls)) is None:
                raise
            kind = TopicNotFoundError if isinstance(error, TopicNotFoundError) else StorageError
            raise kind(f"{error}. {hint}{note}") from None

    def _hint(self, error: LogTableError, urls: tuple[str, ...]) -> str | None:
        if urls and all(url.startswith("file:") for url in urls):
            return None
        if missing := sorted(self.variables - _variables()):
            return (
                f"The driver has {', '.join(missing)} in its environment, and this executor does "
                f"not: give such variables to the executors, {_HOW}"
            )
        if "credential" in str(error).lower():
            return (
                "The driver has opened this store, and this executor finds no credentials: give "
                f"its machine a role, or the variables of the store's client, {_HOW}"
            )
        return None


def check_shared(url: str) -> None:
    """Raise if a topic, or a store, on a local disk is not there, though the driver has opened
    it: files that are written here would be on this machine only."""
    if url.startswith("file://") and not os.path.isdir(path := url.removeprefix("file://")):
        raise StorageError(
            f"the driver has opened {url}, but on the executor's machine ({platform.node()}) "
            f"there is no directory {path}. Is the path shared by all machines of the cluster? "
            "Use a directory that is mounted everywhere, or an object store"
        )
