"""A consumer group over the topics of a store.

Each topic keeps its own positions of the group, so what is done here is done topic by topic: it is
not one step, and an error in the middle leaves the topics before it done.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

from pylogtable.errors import InvalidRequestError
from pylogtable.format.paths import check_group_name
from pylogtable.groups.group import Group, ResetTo
from pylogtable.results.groups import GroupDescription, GroupLag, ResetReport


class StoreGroup:
    """One group in all topics where it has positions or members."""

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
        """The topics it is known in, sorted."""
        return sorted(self._topics_with())

    def describe(self) -> GroupDescription:
        rows = (row for group in self._groups() for row in group.describe())
        return GroupDescription(tuple(rows))

    def lag(self) -> dict[str, GroupLag]:
        """`Group.lag`, by topic."""
        return {group.topic_name: group.lag() for group in self._groups()}

    def reset(
        self,
        to: ResetTo = None,
        *,
        shift_by: int | None = None,
        topics: Sequence[str] | None = None,
        dry_run: bool = False,
    ) -> list[ResetReport]:
        """`Group.reset` in these topics, or in all it is known in. All are tried out before the
        first is changed."""
        chosen = self._groups() if topics is None else [self._group_in(name) for name in topics]
        if not dry_run:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for group in chosen:
                    group.reset(to, shift_by=shift_by, dry_run=True)
        return [group.reset(to, shift_by=shift_by, dry_run=dry_run) for group in chosen]

    def delete(self) -> None:
        """Forget the group in all topics."""
        for group in self._groups():
            group.delete()

    def _groups(self) -> list[Group]:
        names = self.topics()
        if not names:
            raise InvalidRequestError(f"there is no group {self.name!r} in any topic")
        return [self._group_in(name) for name in names]
