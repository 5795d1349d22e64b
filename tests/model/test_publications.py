"""A published table shows one version of the topic, complete, whatever happens beside the publisher
and in whatever order [PUB-1]. The checker finds publishers that are wrong."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

import pylogtable.publish.publisher
from pylogtable.errors import CorruptTopicError
from pylogtable.publish.delta.actions import Action, encode
from pylogtable.publish.delta.log import DeltaLog, entry_path
from pylogtable.publish.delta.table import DeltaTable
from pylogtable.publish.table import Published
from pylogtable.runtime import Runtime
from tests.depth import DEEP
from tests.model.checker import Checker, Faults, Outcome, Told, Writer
from tests.model.exploring import found, holds
from tests.model.published import LOG, TableWatch
from tests.model.publishers import (
    NOW_MS,
    Beginning,
    Work,
    committing,
    compact,
    delete_records,
    job,
    merge,
    open_topic,
    publish,
    publisher,
    unpublish,
    vacuum,
)
from tests.model.replay import Objects, ObjectsStore
from tests.model.writers import is_commit_or_data

CRASH = Faults(1, frozenset({"crash"}))
PUTS = Faults(1, frozenset({"lost", "self_retry", "late"}))
NO_FAULTS = Faults(0)

JOBS: list[list[Work]] = [[merge], [compact], [delete_records]]
if DEEP:
    JOBS += [[merge, compact], [compact, delete_records], [merge, delete_records]]
    JOBS += [[publish, merge], [publish, compact], [publish, delete_records]]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Checkpoints that cannot be written are logged, here thousands of times."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def is_numbered_or_data(key: str) -> bool:
    return is_commit_or_data(key) or (key.startswith(LOG) and key.endswith(".json"))


def explore(
    start: Objects,
    writers: tuple[Writer, ...],
    faults: Faults = NO_FAULTS,
    *,
    settled: Callable[[str], bool] = is_numbered_or_data,
    first_violation_only: bool = False,
    **allowed: Any,
) -> Outcome:
    watch = TableWatch(start, **allowed)
    outcome = Checker(
        start,
        writers,
        faults,
        watch.end,
        watch=watch.step,
        settled=settled,
        store_ms=NOW_MS,
        first_violation_only=first_violation_only,
    ).explore()
    print(
        f"{outcome.schedules} schedules over {outcome.states} states, {outcome.ends} ends, "
        f"{outcome.executions} executions, {len(outcome.violations)} violations"
    )
    return outcome


def doing(*works: Work) -> Writer:
    name = works[0].__name__
    return Writer(name, job(name, *works))


def behind(*, in_files: bool = True) -> Beginning:
    """The table is behind by two appends. The files of the second are shifted."""
    begun = Beginning(in_files=in_files)
    begun.append("ab")
    publish(begun.topic)
    begun.race("b")
    return begun


def long_behind() -> tuple[Objects, str]:
    """The table is behind by appends and a compaction, long ago. The compaction has replaced a file
    that the table has not shown yet; that one is returned as well."""
    begun = Beginning()
    begun.append("a")
    publish(begun.topic)
    begun.append("ba")
    (_, passing) = begun.topic.segments()["path"].to_pylist()
    begun.append("b")
    compact(begun.topic)
    return begun.objects, passing


def beside_vacuum(**how: Any) -> Outcome:
    """Whatever a vacuum removes is not settled. It does not look at files that are young."""
    start, passing = long_behind()
    writers = publisher(), doing(vacuum)
    how["settled"] = lambda key: is_numbered_or_data(key) and key != passing
    return explore(start, writers, may_mix=True, **how)


def beside_unpublish() -> Outcome:
    writers = publisher(), doing(unpublish)
    start, settled = behind().objects, is_commit_or_data
    return explore(start, writers, settled=settled, may_be_removed=True)


class TestPublicationHolds:
    @pytest.mark.records_in("commits", "files")
    def test_beside_an_append(self, in_files: bool) -> None:
        begun = behind(in_files=in_files)
        append = Writer("append", job("append", committing(begun.stage("c"))))
        holds(explore(begun.objects, (publisher(), append)), 10_000)

    def test_beside_an_append_with_faulty_puts(self) -> None:
        begun = behind()
        append = Writer("append", job("append", committing(begun.stage("c"))))
        holds(explore(begun.objects, (publisher(), append), PUTS), 100_000)

    def test_beside_another_publisher(self) -> None:
        holds(explore(behind().objects, (publisher("p"), publisher("q"))), 100_000)

    @pytest.mark.records_in("commits", "files")
    @pytest.mark.parametrize("works", JOBS)
    def test_beside_jobs_that_replace_or_remove_what_it_shows(
        self, works: list[Work], in_files: bool
    ) -> None:
        writers = publisher(), *(doing(work) for work in works)
        holds(explore(behind(in_files=in_files).objects, writers), 10_000)

    def test_beside_a_vacuum_that_removes_what_the_table_has_not_shown_yet(self) -> None:
        holds(beside_vacuum(), 1_000_000)

    def test_publisher_that_dies_at_any_step_and_another_one_after_it(self) -> None:
        start, _ = long_behind()
        holds(explore(start, (publisher(),), CRASH), 10)
        holds(explore(behind().objects, (publisher(),), CRASH), 10)

    def test_beside_one_that_dies_at_any_step(self) -> None:
        holds(explore(behind().objects, (publisher("p"), publisher("q")), CRASH), 500_000_000)

    def test_beside_one_that_unpublishes(self) -> None:
        holds(beside_unpublish(), 100_000_000)


class TestTheCheckerFinds:
    """Each test puts one bug into the publisher, and the bug has to be found."""

    @staticmethod
    def two_publishers() -> Outcome:
        writers = publisher("p"), publisher("q")
        start, settled = behind().objects, is_commit_or_data
        return explore(start, writers, settled=settled, first_violation_only=True)

    def test_publisher_that_overwrites_an_entry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def overwrite(log: DeltaLog, number: int, actions: Iterable[Action], *rest: object) -> bool:
            log._store.write(entry_path(number), encode(actions))
            return True

        monkeypatch.setattr(DeltaLog, "commit", overwrite)
        found(self.two_publishers(), "was overwritten")

    def test_publisher_that_does_not_plan_again_after_a_lost_race(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        right = DeltaLog.commit

        def insist(
            log: DeltaLog, number: int, actions: Iterable[Action], key: str, runtime: Runtime
        ) -> bool:
            while not right(log, number, actions, key, runtime):
                number += 1
                log.newest()
            return True

        monkeypatch.setattr(DeltaLog, "commit", insist)
        found(self.two_publishers(), "again")

    def test_publisher_that_plans_on_what_the_table_has_shown_before(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        right = DeltaTable.show

        def show(
            table: DeltaTable, name: str, before: Published | None, *rest: Any
        ) -> Published | None:
            newest = table.newest()
            if before is not None and newest is not None:
                before = Published(newest.number, before.state)
            return right(table, name, before, *rest)

        monkeypatch.setattr(DeltaTable, "show", show)
        found(self.two_publishers(), "again")

    def test_publisher_that_does_not_seal_shifted_segments(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pylogtable.publish.publisher, "plan_copies", lambda *_: ())
        outcome = explore(behind().objects, (publisher(),))
        found(outcome, "does not show the records of version 3")

    def test_publisher_that_shows_only_the_newest_version(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pylogtable.publish.publisher, "find_advance", lambda *_: None)
        found(explore(long_behind()[0], (publisher(),)), "has new records, and others vanish")

    def test_publisher_that_shows_files_which_nothing_keeps_from_a_vacuum(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pylogtable.publish.publisher, "passing_files", lambda *_: set())
        found(beside_vacuum(first_violation_only=True), "which is gone")

    def test_publisher_that_does_not_look_at_the_entry_before(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def trusting(log: DeltaLog, number: int, actions: Iterable[Action], *rest: object) -> bool:
            created = log._entries.create(number, encode(actions))
            return created.value == "yes"

        monkeypatch.setattr(DeltaLog, "commit", trusting)
        outcome = beside_unpublish()
        assert any("entries are missing" in violation for violation in outcome.violations)

    def test_entry_on_one_that_was_published_again(self) -> None:
        """Another limit: after an unpublish and a publication by somebody else, an entry may follow
        one that it was not planned on, until its publisher looks and removes it [PUB-1]. If the
        publisher dies before that, no other one goes on with the table."""
        begun = Beginning()
        begun.append("a")
        publish(begun.topic)
        begun.append("b")
        start, writers = begun.objects, (doing(unpublish, publish), publisher())
        how: dict[str, Any] = {"may_be_removed": True, "settled": is_commit_or_data}
        found(explore(start, writers, first_violation_only=True, **how), "entry 1 ")
        if DEEP:
            watch = TableWatch(start, may_be_removed=True)

            def later(objects: Objects, told: tuple[Told, ...]) -> str | None:
                store = ObjectsStore(objects)
                try:
                    publish(open_topic(store, "later"))
                except CorruptTopicError:
                    return None
                return watch.step({}, store.objects) or watch.end(store.objects, told)

            dying = Writer("publisher", publisher().program, Writer("dead", lambda *_: None))
            settled: dict[str, Any] = {"settled": is_commit_or_data, "store_ms": NOW_MS}
            holds(Checker(start, (writers[0], dying), CRASH, later, **settled).explore(), 1_000_000)
