"""Reads and writes `_groups/`: finds a group's newest state, puts the next one, removes old ones.

The states of a group are numbered objects, put if absent. Each has the whole state, so all but the
newest may be removed, in ascending order [GRP-7]. Everything here relies on that order: as long as
an object exists, no object after it has been removed. So a reader that finds nothing after an
object, and then finds that the object still exists, has found the newest state [GRP-5]. And a
writer that puts an object, and then finds that the one before it still exists, has put the next
state [GRP-6]. In a remote store, states are also kept for two minutes after the next one was put.
So what was the newest state a minute ago needs no such proof.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pylogtable.errors import CorruptTopicError, StorageError
from pylogtable.format.group_model import GroupOffer, GroupState
from pylogtable.format.group_offer import decode_offer
from pylogtable.format.json_codec import decode_group
from pylogtable.format.paths import (
    GROUPS_DIR,
    group_offer_path,
    group_path,
    group_prefix,
    parse_group_offer_path,
    parse_group_path,
)
from pylogtable.log.clock_skew import is_fresh
from pylogtable.storage.base import Created, ObjectInfo, ObjectStore
from pylogtable.storage.numbered import NumberedObjects
from pylogtable.storage.threads import map_parallel

_logger = logging.getLogger(__name__)

#: What is in the object of an offer. Nobody reads it.
_OFFERED = b"{}"


class GroupTip(NamedTuple):
    """The newest object of a group, and the newest state that belongs to this topic. They differ
    only if a deleted topic of the same name left objects behind [GRP-3]. `confirmed_ms` is a time
    of the store, after which there was none newer; None if that is not known."""

    newest: GroupState | None = None
    state: GroupState | None = None
    confirmed_ms: int | None = None

    @property
    def next_number(self) -> int:
        return 0 if self.newest is None else self.newest.number + 1


class Sight(NamedTuple):
    """The newest state of a group, and the offers beside it, by name."""

    tip: GroupTip
    offers: dict[str, GroupOffer]


class GroupObjects:
    """The states of one group in the topic at the root of `store`."""

    def __init__(self, store: ObjectStore, group: str, topic_id: str) -> None:
        self._store = store
        self._limits = store.limits
        self._group = group
        self._topic_id = topic_id
        self._objects = NumberedObjects(store, lambda number: group_path(group, number))

    def read(self, number: int) -> GroupState | None:
        data = self._objects.read(number)
        return None if data is None else decode_group(data, self._group, number)

    def create(self, number: int, data: bytes) -> Created:
        """Put an encoded state if its number is still free."""
        return self._objects.create(number, data)

    def newest(self, known: GroupTip | None = None) -> GroupTip:
        """The newest state. Reading starts at `known` if it is given."""
        found = None if known is None or known.newest is None else self._forward(known)
        return found or self._from_nothing()

    def look(self, known: GroupTip, *, offering: str | None, reads_next: bool) -> Sight:
        """The newest state and all offers, in one round trip or two. It lists what is above the
        known state. In the same time it puts the offer with the name `offering`, if there is one,
        and with `reads_next` reads the state that probably comes next."""
        if known.newest is None:
            return Sight(self.newest(), {})
        seen_ms, following = self._store.last_reply_ms, known.next_number
        listed: list[str] = []
        ahead: list[GroupState | None] = []
        requests = [lambda: listed.extend(self._keys_above(known.newest))]
        if reads_next:
            requests.append(lambda: ahead.append(self.read(following)))
        if offering is not None:
            requests.append(lambda: self._put_offer(offering))
        map_parallel(self._store, lambda request: request(), requests)
        parsed = map(parse_group_offer_path, listed)
        offers = {
            path[1]: offer
            for path in parsed
            if path is not None and (offer := decode_offer(path[1])) is not None
        }
        numbers = [path[1] for path in map(parse_group_path, listed) if path is not None]
        newest = max(numbers, default=known.newest.number)
        found = ahead[0] if ahead else None
        if newest > (known.newest if found is None else found).number:
            found = self.read(newest)
        found = found or (known.newest if newest == known.newest.number else None)
        is_sure = is_fresh(self._store, seen_ms) and (
            found is not known.newest or is_fresh(self._store, known.confirmed_ms)
        )
        if found is None or found.topic_id != self._topic_id or not is_sure:
            return Sight(self.newest(known), offers)
        return Sight(GroupTip(found, found, seen_ms), offers)

    def _keys_above(self, state: GroupState | None) -> list[str]:
        assert state is not None
        above = group_path(self._group, state.number)
        return [found.key for found in self._store.list_after(group_prefix(self._group), above)]

    def _put_offer(self, name: str) -> None:
        """A failure does no harm: the offer is there or not, and its member goes on either way."""
        try:
            self._store.write(group_offer_path(self._group, name), _OFFERED)
        except StorageError as error:
            _logger.warning("cannot offer a commit of group %s: %s", self._group, error)

    def remove_offer(self, name: str) -> None:
        """A failure does no harm: the offer is void, and is removed with old states."""
        try:
            self._store.delete(group_offer_path(self._group, name))
        except Exception as error:  # any error: the commit has already landed
            _logger.warning("cannot remove an offer of group %s: %s", self._group, error)

    def _from_nothing(self) -> GroupTip:
        """The newest of the listed states. Unless all went fast, this lists again and checks the
        result. It starts over if the state is gone, or may have reused the number of a removed
        state [GRP-5]."""
        seen_ms, numbers = self._store.last_reply_ms, self._numbers()
        while True:
            found = self.listed(numbers, seen_ms)
            if found is not None and (not numbers or is_fresh(self._store, seen_ms)):
                return found
            seen_ms, numbers = self._store.last_reply_ms, self._numbers()
            if found is not None and not self.may_be_stray(found, numbers):
                return found

    def is_next(self, before: GroupTip) -> bool:
        """True if an object that was just put after `before` is the next state. False if its number
        had been used before and was cleaned up [GRP-6]."""
        if is_fresh(self._store, before.confirmed_ms):
            return True
        if before.newest is None:
            return max(self._numbers(), default=0) < self._limits.group_states_kept
        return self._is_there(before.newest)

    def discard(self, state: GroupState) -> None:
        """Remove an object that does not count as a state. A failure does no harm."""
        try:
            if self._is_there(state):
                self._store.delete(group_path(self._group, state.number))
        except StorageError as error:
            _logger.warning("cannot remove a stray state of group %s: %s", self._group, error)

    def clean(self, newest: int) -> None:
        """Remove old states one by one, the oldest first, and stop at the first failure: an object
        must not be removed before those below it [GRP-7]. A failure is only logged. Offers that
        dead members left behind go first, in any order [GRP-16]."""
        try:
            listed = list(self._store.list(group_prefix(self._group)))
            states = _states(listed)
            for entry in listed:
                if (
                    parse_group_offer_path(entry.key) is not None
                    and states[-1][1] - entry.modified_ms >= self._limits.group_kept_ms
                ):
                    self._store.delete(entry.key)
            for (number, _), (_, next_put_ms) in itertools.pairwise(states):
                is_young = states[-1][1] - next_put_ms < self._limits.group_kept_ms
                if number >= newest - self._limits.group_states_kept or (
                    self._store.is_remote and is_young
                ):
                    return
                self._store.delete(group_path(self._group, number))
        except Exception as error:  # any error: the commit has already landed
            _logger.warning("cannot remove old states of group %s: %s", self._group, error)

    def _forward(self, known: GroupTip) -> GroupTip | None:
        """The newest state, found by reading forward from a known one. None if the known one is
        gone. That is checked last: if it still exists, no later object has been removed [GRP-5]."""
        assert known.newest is not None
        newest, state, _ = known
        seen_ms = self._store.last_reply_ms
        for number, data in self._objects.read_forward(known.next_number):
            newest = decode_group(data, self._group, number)
            state = newest if newest.topic_id == self._topic_id else state
        stands = is_fresh(self._store, known.confirmed_ms) or self._is_there(known.newest)
        return GroupTip(newest, state, seen_ms) if stands else None

    def listed(self, numbers: Sequence[int], seen_ms: int | None) -> GroupTip | None:
        """The newest of the states that were listed after the store's time `seen_ms`; None if it no
        longer exists."""
        newest = None
        for number in reversed(numbers):
            found = self.read(number)
            if newest is None and found is None:
                return None
            newest = newest or found
            if found is not None and found.topic_id == self._topic_id:
                return GroupTip(newest, found, seen_ms)
        return GroupTip(newest, None, seen_ms)

    def may_be_stray(self, found: GroupTip, numbers_after: Sequence[int]) -> bool:
        """True if the newest state may have been removed, and its number used again, before it was
        read. A state is removed only when `group_states_kept` are after it [GRP-7], and the
        greatest number is always listed."""
        if found.newest is None:
            return False
        last_kept = max(numbers_after, default=0) - self._limits.group_states_kept
        return found.newest.number < last_kept

    def _is_there(self, state: GroupState) -> bool:
        found = self.read(state.number)
        return found is not None and found.commit_id == state.commit_id

    def _numbers(self) -> list[int]:
        return [number for number, _ in _states(self._store.list(group_prefix(self._group)))]


def _states(listed: Iterable[ObjectInfo]) -> list[tuple[int, int]]:
    """The number of each state, ascending, and when it was put."""
    parsed = ((parse_group_path(entry.key), entry.modified_ms) for entry in listed)
    return sorted((path[1], put_ms) for path, put_ms in parsed if path is not None)


def _listed_numbers(store: ObjectStore) -> dict[str, list[int]]:
    """The numbers of each group's objects, ascending, with a single listing."""
    numbers: dict[str, list[int]] = {}
    for entry in store.list(GROUPS_DIR):
        parsed = parse_group_path(entry.key)
        if parsed is not None:
            numbers.setdefault(parsed[0], []).append(parsed[1])
    return {name: sorted(numbers[name]) for name in sorted(numbers)}


class LoadedGroups(NamedTuple):
    """The groups of a topic by name: the newest state of each that is not deleted, and the error of
    each that is damaged. A damaged group does not hide the others."""

    states: dict[str, GroupState]
    damaged: dict[str, CorruptTopicError]

    @property
    def names(self) -> list[str]:
        return sorted([*self.states, *self.damaged])


def load_groups(store: ObjectStore, topic_id: str) -> LoadedGroups:
    """All groups of the topic at the root of `store`, with two listings, or one if it goes fast."""
    loaded = LoadedGroups({}, {})
    seen_ms, before = store.last_reply_ms, _listed_numbers(store)
    if not before:
        return loaded
    objects = {name: GroupObjects(store, name, topic_id) for name in before}

    def listed(name: str) -> GroupTip | CorruptTopicError | None:
        try:
            return objects[name].listed(before[name], seen_ms)
        except CorruptTopicError as error:
            return error

    found = dict(zip(before, map_parallel(store, listed, list(before)), strict=True))
    after = before if is_fresh(store, seen_ms) else _listed_numbers(store)
    for name, tip in found.items():
        try:
            if not isinstance(tip, GroupTip) or objects[name].may_be_stray(
                tip, after.get(name, ())
            ):
                tip = objects[name].newest()
        except CorruptTopicError as error:
            loaded.damaged[name] = error
            continue
        if tip.state is not None and not tip.state.deleted:
            loaded.states[name] = tip.state
    return loaded
