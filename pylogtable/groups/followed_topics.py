"""Which topics a consumer of many topics reads: those of a list, or those whose names match."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence

from pylogtable.arguments import check_text, names_in
from pylogtable.errors import InvalidRequestError, LogTableError, TopicNotFoundError
from pylogtable.format.paths import check_topic_name
from pylogtable.groups.consumer import Consumer

#: How often a pattern is looked for in the names of topics.
LOOK_EVERY_MS = 10_000

_log = logging.getLogger(__name__)

#: Opens the consumer of a topic. True: the topic came after the first look, so all of it is new.
OpenOne = Callable[[str, bool], Consumer]


class FollowedTopics:
    """Opens a consumer for each topic, also for those that come later and match a pattern."""

    def __init__(
        self,
        topics: Sequence[str] | None,
        pattern: str | None,
        names: Callable[[], Sequence[str]],
        open_one: OpenOne,
    ) -> None:
        if (topics is None) == (pattern is None):
            raise InvalidRequestError(
                "a consumer of several topics needs either `topics`, a list of names, or "
                "`pattern`, and not both"
            )
        self._names = names
        self._open_one = open_one
        self._pattern = None if pattern is None else _compiled(pattern)
        self._listed = list(dict.fromkeys(() if topics is None else names_in("topics", topics)))
        if topics is not None and not self._listed:
            raise InvalidRequestError("`topics` is empty: name at least one topic, or use pattern")
        for name in self._listed:
            check_topic_name(name)
        self._looked_at_ms: int | None = None
        #: Topics that cannot be opened, and why.
        self._left_out: dict[str, str] = {}

    def __repr__(self) -> str:
        return repr(self._listed if self._pattern is None else self._pattern.pattern)

    @property
    def may_change(self) -> bool:
        """True if topics may come and go: those of a pattern."""
        return self._pattern is not None

    def open_new(self, known: Sequence[str], now_ms: int) -> dict[str, Consumer]:
        """Consumers of the topics that are not known yet."""
        if self._pattern is None:
            return {name: self._open_one(name, False) for name in self._listed if name not in known}
        looked_at_ms = self._looked_at_ms
        if looked_at_ms is not None and 0 <= now_ms - looked_at_ms < LOOK_EVERY_MS:
            return {}
        found = {}
        for name in self._names():
            if name in known or not self._pattern.fullmatch(name):
                continue
            opened = self._try_to_open(name, is_new=looked_at_ms is not None)
            if opened is not None:
                found[name] = opened
        self._looked_at_ms = now_ms
        return found

    def _try_to_open(self, name: str, *, is_new: bool) -> Consumer | None:
        """One damaged topic must not stop the others."""
        try:
            consumer = self._open_one(name, is_new and name not in self._left_out)
        except TopicNotFoundError:
            return None  # it was deleted
        except LogTableError as error:
            if self._left_out.get(name) != str(error):
                self._left_out[name] = str(error)
                _log.warning("topic %r is left out by pattern %r: %s", name, self, error)
            return None
        self._left_out.pop(name, None)
        return consumer


def _compiled(pattern: str) -> re.Pattern[str]:
    check_text("pattern", pattern)
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidRequestError(
            f"pattern {pattern!r} is not a regular expression: {error}"
        ) from None
