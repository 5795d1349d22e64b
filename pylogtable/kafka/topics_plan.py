"""Which topics an import or an export of several is about. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pylogtable.arguments import check_flags, check_name, names_in
from pylogtable.errors import InvalidRequestError

#: Kafka's own topics, such as `__consumer_offsets`.
INTERNAL = "__"
#: The topic of an import's records that could not be decoded has the name of the copy and this.
DEAD_LETTERS = "-dead-letters"
#: That of those which a redrive has decoded, as long as the copy takes no other records, and this.
REDRIVEN = "-redriven"
#: So many names an error shows.
_MOST_NAMES = 20


@dataclass(frozen=True)
class Choice:
    """Topics by their names, or those whose whole name matches a pattern, or all."""

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None

    @classmethod
    def of(cls, topics: Sequence[str] | None, pattern: str | None, all_topics: bool) -> Choice:
        """What a caller asks for. Raises unless it is exactly one of the three."""
        check_flags(all_topics=all_topics)
        if (topics is not None) + (pattern is not None) + all_topics != 1:
            raise InvalidRequestError(
                "give the topics, or a pattern of their names, or all of them: exactly one of "
                "`topics`, `pattern` and `all_topics`"
            )
        if topics is not None:
            names = tuple(dict.fromkeys(names_in("topics", topics)))
            for name in names:
                check_name("a name in topics", name)
            if not names:
                raise InvalidRequestError("`topics` must not be empty: name the topics")
            return cls(names)
        if pattern is None:
            return cls()
        check_name("pattern", pattern)
        try:
            return cls(pattern=re.compile(pattern))
        except re.error as error:
            raise InvalidRequestError(
                f"`pattern` is no regular expression: '{pattern}': {error}. It has to match the "
                r"whole name of a topic, such as 'orders\..*'"
            ) from None

    @property
    def may_grow(self) -> bool:
        """True if topics that are created later may belong to it."""
        return not self.topics

    def among(self, names: Iterable[str]) -> list[str]:
        """Those of these topics that are chosen. Internal ones have to be named. As dead letters,
        and what was redriven of them, are no topics that somebody has made, all topics are without
        them."""
        if self.topics:
            return list(self.topics)
        found = sorted(name for name in names if not name.startswith(INTERNAL))
        if self.pattern is not None:
            return [name for name in found if self.pattern.fullmatch(name)]
        return [name for name in found if not name.endswith((DEAD_LETTERS, REDRIVEN))]

    def nothing_in(self, place: str, names: Iterable[str]) -> str:
        """That no topic is chosen, for people."""
        if self.pattern is None:
            return f"there is no topic in {place}"
        found = sorted(names)
        shown = ", ".join(found[:_MOST_NAMES]) or "none"
        more = f", and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
        return (
            f"no topic in {place} matches '{self.pattern.pattern}', which has to match a whole "
            f"name. Its topics: {shown}{more}"
        )
