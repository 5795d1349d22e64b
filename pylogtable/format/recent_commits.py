"""What a state remembers of the last commits, to decide whether an offer may still land. Pure.

It is no part of the state. A root does not have it: a state that began at a root knows the commits
after that root, and no others. An offer that is older than that is left to others [OFFER-3].
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pylogtable.format.model import CombinedAppend, Commit

#: An offer that names version N may land in versions up to N plus this [OFFER-3].
OFFER_WINDOW = 256


@dataclass(frozen=True)
class RecentCommits:
    """All commits after version `since` are known. The last of them that altered the topic is
    `altered`. `landed` has the appends of combined commits by the name of their offer."""

    since: int
    altered: int = -1
    landed: tuple[tuple[int, dict[str, CombinedAppend]], ...] = ()

    def after(self, commit: Commit) -> RecentCommits:
        """This, and one commit more."""
        is_altered = commit.topic is not None or commit.operation == "delete_topic"
        if not is_altered and not commit.appends:
            return self
        named = {one.offer: one for one in commit.appends if one.offer is not None}
        oldest = commit.version - OFFER_WINDOW
        return replace(
            self,
            since=max(self.since, oldest),  # what landed before is forgotten here
            altered=commit.version if is_altered else self.altered,
            landed=(*(one for one in self.landed if one[0] > oldest), (commit.version, named)),
        )

    def find(self, offer: str, seen: int) -> tuple[int, CombinedAppend] | None:
        """The version in which an offer landed, and its append, if it did so after `since`."""
        for version, appends in reversed(self.landed):
            if version <= seen:
                return None
            if offer in appends:
                return version, appends[offer]
        return None

    def continuing(self, older: RecentCommits, version: int) -> RecentCommits:
        """This, and what an earlier state at `version` knew of the commits before. Both are of the
        same topic."""
        if not older.since <= self.since <= version:
            return self
        before = (one for one in older.landed if one[0] <= self.since)
        return RecentCommits(older.since, max(self.altered, older.altered), (*before, *self.landed))
