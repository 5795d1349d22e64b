"""A consumer group over all topics of a store.

Each topic keeps its own positions of the group. An operation here runs topic by topic, so it is not
atomic: if it fails, the topics before the failure have been changed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

from pylogtable.errors import InvalidRequestError
from pylogtable.format.paths import check_group_name
from pylogtable.groups.group import Group
from pylogtable.groups.report import GroupDescription, GroupLag, ResetReport
from pylogtable.operation import operations
from pylogtable.read.position import Bound


@operations
class StoreGroup:
    """A consumer group in all topics where it has positions or members. `store.group(name)` makes
    one. Use it for a group that reads several topics, and `topic.group(name)` for one topic.

    >>> store.group("billing").reset("earliest", dry_run=True)
    """

    def __init__(
        self,
        name: str,
        topics_with: Callable[[], Sequence[str]],
        group_in: Callable[[str], Group],
    ) -> None:
        check_group_name(name)
        self.name = name
        self._topics_with = topics_with
        self._group_in = group_in

    def __repr__(self) -> str:
        return f"<StoreGroup {self.name!r}>"

    def _repr_html_(self) -> str:
        return self.describe()._repr_html_()

    def topics(self) -> list[str]:
        """The names of the topics in which this group exists, sorted."""
        return sorted(self._topics_with())

    def describe(self) -> GroupDescription:
        """Position, lag and owner of every partition in every topic of the group. Use it to see
        which topic or partition is behind."""
        rows = (row for group in self._groups() for row in group.describe())
        return GroupDescription(tuple(rows))

    def lag(self) -> dict[str, GroupLag]:
        """The lag by topic; see `Group.lag`. Use it for monitoring."""
        return {group.topic_name: group.lag() for group in self._groups()}

    def reset(
        self,
        to: Bound = None,
        *,
        shift_by: int | None = None,
        topics: Sequence[str] | None = None,
        dry_run: bool = False,
    ) -> list[ResetReport]:
        """Move the group's positions in these topics, or in all topics of the group; see
        `Group.reset`. All resets are tried as a dry run before the first position changes."""
        chosen = self._groups() if topics is None else [self._group_in(name) for name in topics]
        if not dry_run:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for group in chosen:
                    group.reset(to, shift_by=shift_by, dry_run=True)
        return [group.reset(to, shift_by=shift_by, dry_run=dry_run) for group in chosen]

    def delete(self) -> None:
        """Delete the group in all topics. A group with live members is refused."""
        for group in self._groups():
            group.delete()

    def remove_member(self, name: str, *, dry_run: bool = False) -> dict[str, list[str]]:
        """Remove a dynamic member in all topics of the group; see `Group.remove_member`. Returns
        the ids of the removed members by topic. Raises if no topic has such a member."""
        found: dict[str, list[str]] = {}
        refusal: InvalidRequestError | None = None
        for group in self._groups():
            try:
                found[group.topic_name] = group.remove_member(name, dry_run=dry_run)
            except InvalidRequestError as error:  # noqa: PERF203 (each topic has its own members)
                refusal = error
        if not found and refusal is not None:
            raise refusal
        return found

    def _groups(self) -> list[Group]:
        names = self.topics()
        if not names:
            raise InvalidRequestError(
                f"no topic of this store has a group {self.name!r}; Store.groups() lists the groups"
            )
        return [self._group_in(name) for name in names]
