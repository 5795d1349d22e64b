"""A day in the life of a store: twenty topics, two processes that are killed at random, and readers
who compare each version of each published table with the topic."""

from __future__ import annotations

import warnings
from collections import Counter

import pytest

from pylogtable.errors import CommitUnknownError, StorageError
from pylogtable.limits import DEFAULT_LIMITS
from pylogtable.publish.delta.schema import CHECKPOINT_INTERVAL
from pylogtable.run.due_plan import CHECK_MS
from pylogtable.run.loop import DISCOVERY_MS
from pylogtable.run.members import BEAT_MS, MEMBERS_DIR
from pylogtable.store import Store
from tests.builders import IN_FILES, T0
from tests.depth import new_seed, rounds
from tests.run.day import DAY_MS, HOUR_MS, MINUTE_MS, Day, Kind

EVERY_SECONDS = 60
LAG = {"publish.max.lag.ms": 2 * MINUTE_MS}
DELTA = {"publish.formats": "delta", **LAG}
ICEBERG = {"publish.formats": "iceberg", **LAG}
BOTH = {"publish.formats": "delta,iceberg", **LAG}
KEPT = {"retention.ms": -1}
COMPACT = {"cleanup.policy": "compact", "delete.retention.ms": HOUR_MS}
BOTH_POLICIES = {"cleanup.policy": "compact,delete"}
BUSY, SLOW = rounds(16, deep=300), rounds(6, deep=100)

KINDS = [
    Kind("delta-commits", BUSY, config={**DELTA, **KEPT}),
    Kind("delta-files", BUSY, config={**DELTA, **KEPT, **IN_FILES}),
    Kind("delta-wide", SLOW, (8, 200), partitions=6, config={**DELTA, **KEPT, **IN_FILES}),
    Kind("delta-state", BUSY, keys=40, config={**DELTA, **COMPACT}),
    Kind("delta-expires", BUSY, config={**DELTA, "retention.ms": 2 * HOUR_MS}),
    Kind("iceberg-commits", BUSY, config={**ICEBERG, **KEPT}),
    Kind("iceberg-state", SLOW, partitions=2, keys=40, config={**ICEBERG, **COMPACT, **IN_FILES}),
    Kind("both-files", SLOW, (1, 500), partitions=2, config={**BOTH, **KEPT, **IN_FILES}),
    Kind(
        "both-state", SLOW, keys=20, config={**BOTH, **COMPACT, "cleanup.policy": "compact,delete"}
    ),
    Kind(
        "latest", BUSY, partitions=2, keys=40, config={**BOTH, **COMPACT, "publish.view": "latest"}
    ),
    Kind("commits", BUSY, config=KEPT),
    Kind("files", BUSY, config={**KEPT, **IN_FILES}),
    Kind("wide", SLOW, (8, 200), partitions=6, config={**KEPT, **IN_FILES}),
    Kind("state", BUSY, keys=40, config=COMPACT),
    Kind("expires", BUSY, config={"retention.ms": HOUR_MS, **IN_FILES}),
    Kind("limited", BUSY, (1_000,), config={"retention.bytes": 50_000, **IN_FILES}),
    Kind("groups", SLOW, has_groups=True, config={**KEPT, "offsets.retention.minutes": 60}),
    Kind("quiet", 1, config=KEPT),
    Kind("quiet-shown", 1, config={**DELTA, **KEPT}),
    Kind("comes", SLOW, begins_ms=6 * HOUR_MS, config={**DELTA, **KEPT}),
    Kind("goes", SLOW, ends_ms=9 * HOUR_MS, config={**BOTH, **KEPT}),
    # For an hour, as fast as users have it.
    Kind(
        "hot",
        SLOW,
        begins_ms=4 * HOUR_MS,
        ends_ms=4 * HOUR_MS + 10 * MINUTE_MS,
        config={"publish.formats": "delta"},
    ),
]
MIRRORED = ["files", "wide", "state"]


@pytest.fixture(scope="module")
def day() -> Day:
    """The day, and a quarter of an hour in which nothing new comes and nobody is killed."""
    day = Day(KINDS, new_seed(), 24 * HOUR_MS, kill_after=5_000)
    for name in ("a", "b"):
        day.add_runner(name, every_seconds=EVERY_SECONDS)
    copies = Store(day.mirrored, day._runtime())
    day.add_runner(
        "m", every_seconds=EVERY_SECONDS, topics=MIRRORED, jobs=["mirror"], mirror_to=copies
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "topic .* is compacted")
        day.run(day.until_ms)
        day.calm_down()
        day.run(day.until_ms + 15 * MINUTE_MS)
    print(f"{day.kills} kills, {day.failures} failures of the store, worst lag {day.worst_lag} ms")
    return day


def kind_of(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)


def test_every_version_of_every_table_was_right_and_no_table_was_late(day: Day) -> None:
    """The day looks after each step. In the end all is shown."""
    assert day.kills > 20
    for (name, table), shown in day.shown.items():
        assert not shown.waiting, (name, table)
        assert shown.versions >= 5
    # Without a kill or a failure a table is never later than its setting says. 60 % of it are for
    # the loop.
    assert 0 < day.worst_lag[False] <= 0.6 * LAG["publish.max.lag.ms"]


def test_topics_and_mirrors_have_what_was_appended(day: Day) -> None:
    copies = Store(day.mirrored, day._runtime())
    for name, topic in day.topics.items():
        assert topic.verify(data=True), name
        if kind_of(name).is_compacted:
            found = topic.latest()
            pairs = zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True)
            left = {key.decode(): int(value) for key, value in pairs if value is not None}
            assert left == day.newest_values(name)
        else:
            values = sorted(map(int, topic.read(columns=["value"]).read_all()["value"].to_pylist()))
            appended = [value for _, value in day.appended[name]]
            assert values == appended[len(appended) - len(values) :], name
            removes = {"retention.ms", "retention.bytes"} & {
                key for key, value in kind_of(name).config.items() if value != -1
            }
            assert (len(values) < len(day.appended[name])) == bool(removes)
        if name in MIRRORED:
            assert copies.topic(name).read().read_all() == topic.read().read_all()


def test_only_the_store_has_failed(day: Day) -> None:
    errors = [run.error for _, run in day.runs if run.error is not None]
    assert all(isinstance(error, StorageError | CommitUnknownError) for error in errors)
    assert len(errors) <= day.failures


def test_requests_of_an_hour_are_bounded(day: Day) -> None:
    """Three loops with their beats and searches, looks at topics, and the jobs that have run.

    A look is two requests here: a store that is not remote proves nothing by its replies. A loop
    that takes a topic over reads the commits since the last root.
    """
    own = HOUR_MS // BEAT_MS * 2 + HOUR_MS // DISCOVERY_MS
    looks = sum(
        HOUR_MS // min(EVERY_SECONDS * 1_000, kind.max_lag_ms // 4)
        if kind.formats and kind.ends_ms is None
        else HOUR_MS // (EVERY_SECONDS * 1_000)
        for kind in (*KINDS, *map(kind_of, MIRRORED))
    )
    runs = Counter((run.began_ms - T0) // HOUR_MS for _, run in day.runs)
    vacuums = Counter((run.began_ms - T0) // HOUR_MS for _, run in day.runs if run.job == "vacuum")
    commits = max(topic.version for topic in day.topics.values())
    hot = HOUR_MS // 500 // 6
    for hour in range(24):
        allowed = 3 * own + 2 * (looks + hot * (hour == 4))
        allowed += 20 * runs[hour] + 72 * day.taken_in[hour] + commits * vacuums[hour]
        print(
            f"hour {hour}: {day.requests[hour]} requests of {allowed}, {runs[hour]} job runs, "
            f"{vacuums[hour]} vacuums, {day.taken_in[hour]} topics taken over"
        )
        assert day.requests[hour] <= allowed


def test_the_same_work_is_not_done_twice(day: Day) -> None:
    """A loop that takes a topic over does not know what has been done, so it runs each job once.
    After six quiet hours it looks whether a table is still there. Other publications show something
    new."""
    runs = Counter((run.job, run.has_changed) for _, run in day.runs if run.error is None)
    published = {kind.name for kind in KINDS if kind.formats}
    taken = sum(count for name, count in day.taken.items() if name in published)
    print(f"{dict(runs)}; {sum(day.taken.values())} topics taken over, {taken} of them published")
    assert runs["publication", False] <= taken + len(published) * (DAY_MS // CHECK_MS)
    assert sum(day.taken.values()) <= len(KINDS) * 2 * (day.kills + 3)


def test_files_of_a_topic_are_bounded_all_day(day: Day) -> None:
    """At most ten segments of each power of ten of records, and those that wait for a merge. Small
    appends to a topic that is not published wait in commits until there are 256 of them."""
    print(dict(day.most_segments))
    for kind in KINDS:
        digits = len(str(max(1, len(day.appended[kind.name]))))
        in_commits = 0 if kind.formats or "inline.max.bytes" in kind.config else 256
        allowed = kind.partitions * 10 * (digits + 1) + in_commits
        assert day.most_segments[kind.name] <= allowed, kind.name


def test_metadata_is_bounded_once_its_time_is_over(day: Day) -> None:
    """The last of the tests: eight days later a vacuum has removed what nobody needs any more, and
    no loop looks at more than is left."""
    before = objects_by_kind(day)
    day.clock.tick(8 * DAY_MS)
    day.run(day.clock.now_ms + 30 * MINUTE_MS)
    after = objects_by_kind(day)
    for name, topic in day.topics.items():
        print(name, dict(before[name]), dict(after[name]))
        assert topic.verify(data=True)
        # Commits below a root stay if records are in them. Of a table, what the last checkpoint or
        # snapshot needs, and entries since then.
        in_commits = sum("@" in path for path in topic.segments()["path"].to_pylist())
        assert after[name]["_manifest"] <= in_commits + 64 + 8 + 5, name
        assert after[name]["_delta_log"] <= 2 * CHECKPOINT_INTERVAL + 5, name
        # Snapshots of an Iceberg table leave it with the next publication only, so what a day has
        # written may stay until then.
        assert after[name]["metadata"] <= before[name]["metadata"], name
        assert after[name]["_groups"] <= 5 * (DEFAULT_LIMITS.group_states_kept + 1), name
    assert not day.topics["groups"].groups()
    assert len(list(day.objects.list(MEMBERS_DIR))) == len(day.runners)


def objects_by_kind(day: Day) -> dict[str, Counter[str]]:
    return {
        name: Counter(info.key.split("/")[0].partition("=")[0] for info in topic._store.list())
        for name, topic in day.topics.items()
    }
