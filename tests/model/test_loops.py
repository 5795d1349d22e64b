"""Two loops that both believe that a topic is theirs, beside a writer. Claims are soft: one that
has slept, and one that has taken over, may work on a topic at the same time. In every order of
their requests the table is right, and no record is lost."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.depth import DEEP
from tests.model.checker import DAY_MS, Checker, Faults, Outcome, Told, Writer
from tests.model.exploring import holds
from tests.model.loops import loop
from tests.model.published import Records, TableWatch
from tests.model.publishers import NOW_MS, Beginning, committing, job, open_topic
from tests.model.replay import Objects, ObjectsStore
from tests.model.test_publications import is_numbered_or_data

NO_FAULTS = Faults(0)
CRASH = Faults(1, frozenset({"crash"}))
PUBLISHED = {"publish.formats": "delta"}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def begun(config: dict[str, Any], *, in_files: bool = True) -> Beginning:
    """A published topic with a few appends, the files of one are shifted."""
    beginning = Beginning(in_files=in_files)
    beginning.topic.alter(config={**PUBLISHED, **config})
    beginning.append("ab")
    beginning.topic.publish(["delta"], threads=1)
    beginning.race("b")
    return beginning


def explore(
    start: Objects, writers: tuple[Writer, ...], faults: Faults = NO_FAULTS, **how: Any
) -> Outcome:
    watch = TableWatch(start)

    def end(objects: Objects, told: tuple[Told, ...]) -> str | None:
        return watch.end(objects, told) or wrong_records(objects)

    outcome = Checker(
        start,
        writers,
        faults,
        end,
        watch=watch.step,
        settled=is_numbered_or_data,
        store_ms=NOW_MS,
        **how,
    ).explore()
    print(
        f"{outcome.schedules} schedules over {outcome.states} states, {outcome.ends} ends, "
        f"{outcome.executions} executions, {len(outcome.violations)} violations"
    )
    return outcome


def wrong_records(objects: Objects) -> str | None:
    """What is wrong with the records of the topic: the newest of each key must be there, each
    record once, in order."""
    topic = open_topic(ObjectsStore(objects), "look")
    report = topic.verify(data=True)
    if not report:
        return f"the topic is not sound: {report}"
    whole = Records()
    newest: dict[str, int] = {}
    for version in range(topic.version + 1):
        rows = topic.read(version=version, columns=["offset", "k", "n"]).read_all().to_pylist()
        for row in rows:
            whole[0, row["offset"], row["n"]] = 1
            newest[row["k"]] = max(newest.get(row["k"], -1), row["n"])
    rows = topic.read(columns=["offset", "k", "n"]).read_all().to_pylist()
    if len({row["offset"] for row in rows}) != len(rows):
        return "a record is there twice"
    if not {(0, row["offset"], row["n"]) for row in rows} <= set(whole):
        return "a record has changed its place"
    lost = {key: n for key, n in newest.items() if n not in {row["n"] for row in rows}}
    if lost and not topic.start_offsets()[0]:
        return f"the newest records of {lost} are lost"
    return None


def appender(beginning: Beginning, keys: str = "c") -> Writer:
    return Writer("append", job("append", committing(beginning.stage(keys))))


#: Rewrites meet a publication, and each other.
PAIRS = [("publication", "merge"), ("publication", "compaction"), ("merge", "compaction")]
if DEEP:
    PAIRS += [("publication", "retention"), ("merge", "merge"), ("compaction", "compaction")]


class TestTwoOwnersHold:
    @pytest.mark.records_in("commits", "files")
    def test_both_publish(self, in_files: bool) -> None:
        beginning = begun({}, in_files=in_files)
        writers = loop("p", ["publication"]), loop("q", ["publication"])
        holds(explore(beginning.objects, writers), 10_000)

    @pytest.mark.parametrize(("one", "other"), PAIRS)
    def test_each_has_another_job_in_hand_beside_a_writer(self, one: str, other: str) -> None:
        beginning = begun({})
        writers = loop("p", [one]), loop("q", [other]), appender(beginning)
        holds(explore(beginning.objects, writers), 10_000)

    def test_one_dies_at_any_step(self) -> None:
        writers = loop("p", ["publication"]), loop("q", ["merge"])
        holds(explore(begun({}).objects, writers, CRASH), 10_000)

    def test_one_deletes_by_age_while_the_other_publishes(self) -> None:
        """Everything is older than a day here."""
        beginning = begun({"retention.ms": DAY_MS})
        writers = loop("p", ["publication"]), loop("q", ["retention"])
        holds(explore(beginning.objects, writers), 1_000)


class TestTheCheckerFinds:
    def test_merge_that_does_not_look_whether_its_files_are_still_live(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pylogtable.jobs.replace_plan.still_fits", lambda *_: True)
        beginning = begun({})
        writers = loop("p", ["merge"]), loop("q", ["compaction"])
        outcome = explore(beginning.objects, writers, first_violation_only=True)
        assert outcome.violations
