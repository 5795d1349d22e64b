"""`pylogtable kafka import`, on librdkafka's mock of a cluster."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import pylogtable
from pylogtable.cli import kafka as command
from pylogtable.cli.many_topics import ImportsShown
from pylogtable.cli.metrics import Metrics
from pylogtable.kafka import ImportProgress
from tests.cli.conftest import ROOT, AtTerminal, Run
from tests.kafka.mock import MockCluster, mock_cluster
from tests.library.kafka.test_import import made_by_an_earlier_release

pytestmark = pytest.mark.filterwarnings("ignore:.* are already older than retention.ms")


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with mock_cluster() as started:
        yield started


@pytest.fixture
def source(cluster: MockCluster) -> str:
    name = cluster.new_topic()
    cluster.produce(name, 0, [b"a", None, b"c"])
    cluster.produce(name, 2, [b"d"])
    return name


def arguments(cluster: MockCluster, topic: str) -> list[str]:
    given = ["--bootstrap-servers", cluster.servers, "--topic", topic, "--no-copy-settings"]
    return ["kafka", "import", *given]


def test_import_says_what_came(run: Run, cluster: MockCluster, source: str) -> None:
    done = run(*arguments(cluster, source))
    assert (done.status, done.err) == (0, "")
    of = f"copy of Kafka's topic {source!r} at {cluster.servers}"
    assert done.out == f"{source}: 4 records in 1 commit; 0:[0,3) 2:[0,1); {of}\n"
    again = run(*arguments(cluster, source), "--output", "json")
    assert again.json["records"] == 0
    assert run("consume", source, "--format", "%p:%o %s;").out == "0:0 a;0:1 ;0:2 c;2:0 d;"


def test_copy_takes_records_of_others_after_it_was_promoted(
    run: Run, cluster: MockCluster, source: str
) -> None:
    run(*arguments(cluster, source))
    of = f"copy of Kafka's topic {source!r} at {cluster.servers}"
    way = f"for instance, run pylogtable topics promote {source}"
    run("produce", source, stdin="x\n").failed("append is refused", of, way)
    run("topics", "alter", source, "--partitions", 9).failed("alter is refused", of, way)
    assert f"Import: {of}" in run("topics", "describe", source).out
    [told] = run("topics", "describe", source, "--output", "json").json
    assert (told["copy_of"]["name"], told["copy_of"]["ended"]) == (source, None)
    run("topics", "promote", source).failed(
        f"this would end for good: the imports into topic {source} (", f"a {of}; add --yes"
    )
    done = run("topics", "promote", source, "--yes")
    assert done.out == f"Promoted topic {source}, now version 2.\n"
    again = run("topics", "promote", source)
    assert again.out == f"It was promoted before: topic {source}, now version 2.\n"
    assert run("produce", source, stdin="x\n").status == 0
    run(*arguments(cluster, source)).failed("was promoted in version 2", "--name")


def test_what_many_imports_left_out_names_their_topics(run: Run, cluster: MockCluster) -> None:
    names = cluster.new_topic(), cluster.new_topic()
    for name in names:
        cluster.producer.list_topics(name, timeout=30)
    more = ["--topic", names[1], "--value-format", "json"]
    done = run(*arguments(cluster, names[0]), *more)
    for name in names:
        assert f"\n{name}: not copied: " in f"\n{done.err}"


def test_no_topic_is_promoted_if_one_of_them_is_missing_or_no_copy(
    run: Run, at_terminal: AtTerminal, cluster: MockCluster, source: str
) -> None:
    run(*arguments(cluster, source))
    run(*arguments(cluster, source), "--name", "second")
    run("topics", "create", "other")
    run("topics", "promote", source, "nope", "--yes").failed("there is no topic 'nope'")
    run("topics", "promote", source, "other", "--yes").failed(
        "topic other is no copy of another one, and none of Kafka's. Nothing was promoted"
    )
    asked = at_terminal("topics", "promote", source, "second", answer="n\n")
    of = f"a copy of Kafka's topic '{source}' at {cluster.servers}"
    size = r"\(4 records, [^)]*\)"
    assert re.search(
        rf"^This will end for good: the imports into topic {source} {size}, {of}; "
        rf"the imports into topic second {size}, {of}\. Continue\? \[y/N\]",
        asked.err,
    )
    described = run("topics", "describe", "--output", "json").json
    assert [one["copy_of"] and one["copy_of"]["ended"] for one in described] == [None] * 3
    done = run("topics", "promote", source, "second", "--yes")
    assert done.out.count("Promoted topic ") == 2


def test_all_copies_of_a_store_are_promoted(run: Run, cluster: MockCluster, source: str) -> None:
    run(*arguments(cluster, source))
    run("topics", "create", "other")
    done = run("topics", "promote", "--all-topics", "--yes")
    assert (done.status, done.out) == (0, f"Promoted topic {source}, now version 2.\n")
    assert "other is no copy, and stays as it is" in done.err


@pytest.mark.filterwarnings("default:.* earlier release")
def test_copy_of_an_earlier_release_is_guarded_on_request(
    run: Run, cluster: MockCluster, source: str, store_dir: Path
) -> None:
    made_by_an_earlier_release(pylogtable.open(store_dir), cluster, source)
    assert "To guard it, import with --guard" in run(*arguments(cluster, source)).err
    guarded = run(*arguments(cluster, source), "--guard")
    assert guarded.err == ""
    assert "; copy of Kafka's topic" in guarded.out


def test_other_name_and_settings(
    run: Run, cluster: MockCluster, source: str, store_dir: Path
) -> None:
    more = ["--name", "copy", "-c", "retention.ms=-1", "--linger", "0.5", "--batch-bytes", "1000"]
    assert run(*arguments(cluster, source), *more).status == 0
    topic = pylogtable.open(store_dir).topic("copy")
    assert topic.count() == 4
    assert topic.describe().config["retention.ms"] == "-1"


@pytest.mark.filterwarnings("default:.* is not used")
def test_options_of_a_new_topic_are_not_dropped_in_silence(
    run: Run, cluster: MockCluster, source: str
) -> None:
    given = [*arguments(cluster, source), "-c", "segment.bytes=1000000"]
    assert run(*given).err == ""
    assert run(*given).err == ""
    other = run(*arguments(cluster, source), "-c", "segment.bytes=2000000")
    assert other.status == 0
    assert "--config segment.bytes=2000000 is not used" in other.err
    assert f"pylogtable topics alter {source} --config segment.bytes=2000000" in other.err
    later = run(*arguments(cluster, source), "--from-timestamp", "2024-01-01")
    assert later.status == 0
    assert "--from-timestamp is not used" in later.err


class TestManyTopics:
    @pytest.fixture
    def names(self, cluster: MockCluster) -> list[str]:
        """Three topics, with one, two and three records, and the beginning of their names."""
        first = cluster.new_topic()
        made = [f"{first}.{name}" for name in "abc"]
        for count, name in enumerate(made, 1):
            cluster.produce(name, 0, [b"v"] * count)
        return made

    def words(self, cluster: MockCluster, *more: str) -> list[str]:
        return ["kafka", "import", "--bootstrap-servers", cluster.servers, "--no-copy-settings",
                *more]  # fmt: skip

    def test_several_topics_have_a_line_each(
        self, run: Run, cluster: MockCluster, names: list[str]
    ) -> None:
        given = [word for name in names for word in ("--topic", name)]
        done = run(*self.words(cluster, *given))
        assert (done.status, done.err) == (0, "")
        said = sorted(line.partition(";")[0] for line in done.out.splitlines())
        counts = ("1 record", "2 records", "3 records")
        assert said == [f"{n}: {many} in 1 commit" for n, many in zip(names, counts, strict=True)]
        assert run("topics", "list").out.split() == names

    def test_pattern_with_json_is_a_list(
        self, run: Run, cluster: MockCluster, names: list[str]
    ) -> None:
        pattern = names[0].replace(".", r"\.")[:-1] + "[ab]"
        done = run(*self.words(cluster, "--topic-pattern", pattern, "--output", "json"))
        assert [(one["topic"], one["records"], one["error"]) for one in done.json] == [
            (names[0], 1, None),
            (names[1], 2, None),
        ]

    def test_topic_that_fails_is_named_and_the_others_come(
        self, run: Run, cluster: MockCluster, names: list[str]
    ) -> None:
        run("topics", "create", names[1])
        run("produce", names[1], stdin="x\n")
        given = ["--topic", names[0], "--topic", names[1], "--topic", "nope"]
        done = run(*self.words(cluster, *given))
        assert done.status == 1
        assert done.out.startswith(f"{names[0]}: 1 record in 1 commit")
        assert len(done.out.splitlines()) == 1
        assert "has no topic 'nope'" in done.err
        assert f"{names[1]}: topic '{names[1]}' has records that no import" in done.err
        told = run(*self.words(cluster, *given, "--output", "json"))
        assert told.status == 1
        assert [(one["topic"], one["error"] is None) for one in told.json] == [
            ("nope", False),
            (names[0], True),
            (names[1], False),
        ]

    def test_all_topics(self, run: Run, cluster: MockCluster, names: list[str]) -> None:
        done = run(*self.words(cluster, "--all-topics"))
        assert done.status == 0
        assert set(names) <= set(run("topics", "list").out.split())

    def test_one_topic_keeps_its_object(
        self, run: Run, cluster: MockCluster, names: list[str]
    ) -> None:
        given = ["--topic", names[0], "--topic", names[0], "--name", "copy"]
        done = run(*self.words(cluster, *given, "--output", "json"))
        assert (done.json["topic"], done.json["records"]) == ("copy", 1)

    def test_wrong_usage(self, run: Run, cluster: MockCluster, names: list[str]) -> None:
        one = "give --topic, --topic-pattern or --all-topics: one of them"
        run(*self.words(cluster)).failed(one, status=2)
        run(*self.words(cluster, "--topic", "a", "--all-topics")).failed(one, status=2)
        run(*self.words(cluster, "--all-topics", "--topic-pattern", "x")).failed(one, status=2)
        many = self.words(cluster, "--topic", "a", "--topic", "b", "--name", "c")
        run(*many).failed("--name is for a single topic", status=2)
        run(*self.words(cluster, "--topic-pattern", "(")).failed("is no regular expression")
        run(*self.words(cluster, "--topic-pattern", "zz")).failed("matches 'zz'", "Its topics: ")

    def test_sigterm_ends_all_with_their_reports(
        self, cluster: MockCluster, names: list[str], store_dir: Path
    ) -> None:
        given = [word for name in names for word in ("--topic", name)]
        process = subprocess.Popen(
            [sys.executable, "-m", "pylogtable", *self.words(cluster, *given), "--follow",
             "--linger", "0.1", "--store", str(store_dir)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )  # fmt: skip
        store = pylogtable.open(store_dir)
        deadline = time.monotonic() + 60
        while [store.topic(name).count() for name in store.topics()] != [1, 2, 3]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 143, err
        said = sorted(line.partition(" in ")[0] for line in out.decode().splitlines())
        counts = ("1 record", "2 records", "3 records")
        assert said == [f"{n}: {many}" for n, many in zip(names, counts, strict=True)]

    def test_exports(
        self, run: Run, cluster: MockCluster, names: list[str], tmp_path: Path
    ) -> None:
        first = cluster.new_topic()
        for name in ("a", "b"):
            cluster.producer.list_topics(f"{first}-{name}", timeout=30)
            run("topics", "create", f"{first}-{name}")
            run("produce", f"{first}-{name}", stdin=f"{name}\n")
        words = ["kafka", "export", "--bootstrap-servers", cluster.servers]
        done = run(*words, f"{first}-a", f"{first}-b", "nope")
        assert done.status == 1
        assert sorted(line.partition(";")[0] for line in done.out.splitlines()) == [
            f"{first}-a: 1 record sent",
            f"{first}-b: 1 record sent",
        ]
        assert "nope" in done.err
        again = run(*words, "--all-topics", "--output", "json")
        assert [(one["topic"], one["records"]) for one in again.json] == [
            (f"{first}-a", 0),
            (f"{first}-b", 0),
        ]
        assert len(run(*words, "--topic-pattern", ".*-a").out.splitlines()) == 1
        run(*words).failed("give the topics, --topic-pattern or --all-topics", status=2)
        other = str(tmp_path / "other" / "t")
        run(*words, f"{first}-a", other).failed("give topics of one store", status=2)

    def test_progress_shows_the_topics_that_are_farthest_behind(self) -> None:
        said: list[tuple[str, float, list[str]]] = []

        def show(detail: str, seconds: float = 0.0, rows: Sequence[str] = ()) -> None:
            said.append((detail, seconds, list(rows)))

        shown = ImportsShown(show, Metrics())
        for number in range(12):
            at = ImportProgress(1000, 1, 2.0, {0: 0, 1: number * 100})
            shown.tell(f"t{number:02}", at)
        text, seconds, told = said[-1]
        assert text.startswith("12 topics: 12,000 records, ")
        assert text.endswith("lag 6,600")
        assert seconds == 2.0
        assert told[0] == "t11: 1,000 records, lag 1,100"
        assert told[-1] == "and 2 more"
        assert len(told) == 11
        shown.note_failed("t03")
        shown.note_failed("new")
        assert said[-1][0].endswith("lag 6,600, 2 failed")
        shown.tell("t03", ImportProgress(2000, 2, 3.0, {}))
        assert said[-1][0].endswith("lag 6,300, 1 failed")


def test_errors_are_one_line(run: Run, cluster: MockCluster, source: str) -> None:
    run(*arguments(cluster, "nope")).failed("has no topic 'nope'")
    wrong = run(*arguments(cluster, source), "--consumer-property", "no.such=1")
    wrong.failed("No such configuration property", "settings for Kafka")
    assert run(*arguments(cluster, source), "--from-timestamp", "soon").status == 2
    run("kafka", "import", "--topic", "t").failed("--bootstrap-servers", status=2)


def test_sigterm_ends_it_with_a_report(cluster: MockCluster, source: str, store_dir: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pylogtable", *arguments(cluster, source), "--follow",
         "--linger", "0.1", "--store", str(store_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )  # fmt: skip
    store = pylogtable.open(store_dir)
    deadline = time.monotonic() + 60
    while source not in store.topics() or store.topic(source).count() < 4:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert out.decode().startswith(f"{source}: 4 records in ")
    assert store.topic(source).count() == 4


def test_export_says_how_far_it_is(run: Run, cluster: MockCluster, source: str) -> None:
    run(*arguments(cluster, source))
    target = cluster.new_topic()
    cluster.producer.list_topics(target, timeout=30)
    given = ["kafka", "export", source, "--bootstrap-servers", cluster.servers, "--name", target]
    group = f"kafka-export-{target}"
    assert run(*given).out == f"{source}: 4 records sent; group {group} at 0:3 1:0 2:1 3:0\n"
    assert run(*given, "--output", "json").json["records"] == 0


def test_export_of_columns(run: Run, cluster: MockCluster, store_dir: Path, tmp_path: Path) -> None:
    target, schema = cluster.new_topic(), tmp_path / "order.json"
    cluster.producer.list_topics(target, timeout=30)
    schema.write_text('{"type": "object", "properties": {"id": {"type": "integer"}}}')
    table = pylogtable.open(store_dir).create_topic("table", 1, {"k": "string", "id": "int"}, ["k"])
    table.append(pa.table({"k": ["a"], "id": pa.array([7], pa.int32())}))
    words = ["kafka", "export", "table", "--bootstrap-servers", cluster.servers, "--name", target]
    run(*words).failed("--value-format")
    run(*words, "--value-format", "json-schema").failed("json-schema needs a schema")
    formats = ["--value-format", "json-schema", "--value-schema", schema]
    run(*words, *formats).failed("--key-format")
    done = run(*words, *formats, "--key-format", "json")
    assert done.out.startswith("table: 1 record sent; ")
    run(*arguments(cluster, target))
    assert run("consume", target, "--format", "%k %s").out == '{"k":"a"} {"id":7}'


def test_progress_shows_records_the_speed_of_the_last_seconds_and_lag() -> None:
    at = ImportProgress(records=3000, commits=2, seconds=1.5, lag={0: 0, 1: 1234})
    speed = command.Speed()
    assert (
        command._shown(at, speed.at(at.seconds, at.records))
        == "3,000 records, 2,000 records/s, lag 1: 1,234"
    )
    later = [ImportProgress(3000, 2, 5.0 * n, {0: 0}) for n in range(1, 8)]
    shown = [command._shown(at, speed.at(at.seconds, at.records)) for at in later]
    assert shown[0] == "3,000 records, 600 records/s, lag none"
    assert shown[-1] == "3,000 records, 0 records/s, lag none"


def test_import_on_a_terminal_shows_its_progress(
    cluster: MockCluster, source: str, store_dir: Path
) -> None:
    def shown(told: str) -> bool:
        return "4 records, " in told and "records/s, lag none" in told

    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "pylogtable", *arguments(cluster, source), "--follow",
         "--linger", "0.1", "--store", str(store_dir)],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "150"},
    ) as process:  # fmt: skip
        os.close(theirs)
        told = ""
        while not shown(told):
            told += os.read(ours, 65536).decode(errors="replace")
        process.send_signal(signal.SIGTERM)
        with suppress(OSError):  # the other end is closed
            while os.read(ours, 65536):
                pass
    os.close(ours)
    assert process.returncode == 143


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("segment.ms=1000", "a segment is what one commit wrote"),
        ("min.insync.replicas=2", "there are no brokers and no replicas"),
        ("max.message.bytes=5", "a record may have 512 MiB"),
    ],
)
def test_setting_of_kafka_without_a_meaning_says_why(run: Run, setting: str, why: str) -> None:
    name = setting.partition("=")[0]
    done = run("topics", "create", "t", "--config", setting)
    done.failed(f"topic config {name} of Kafka has no meaning here", why)


def test_values_become_columns_and_dead_letters_are_told(run: Run, cluster: MockCluster) -> None:
    topic = cluster.new_topic()
    cluster.produce(topic, 0, [b'{"n": 1}', b"damaged", None])
    given = [*arguments(cluster, topic), "--value-format", "json", "-c", "retention.ms=-1"]
    done = run(*given)
    assert done.status == 0
    assert done.out.startswith(f"{topic}: 2 records in 1 commit; 0:[0,3); copy of Kafka's topic")
    assert done.err == (
        f"pylogtable: 1 record could not be decoded: see topic {topic}-dead-letters; when the "
        f"reason is gone: pylogtable kafka redrive {topic}\n"
    )
    again = run("kafka", "redrive", topic, "--dry-run")
    assert again.status == 0
    assert again.out.startswith(f"{topic}-redriven: 0 dead letters decode; 1 still dead\n1: ")
    assert run("kafka", "redrive", topic, "--output", "json").json["dead"] == 1
    run(*arguments(cluster, topic)).failed("was imported with --value-format")
    run(*given, "--on-error", "ignore").failed("--on-error", status=2)
    run("kafka", "redrive", "nope").failed("there are no dead letters of 'nope'")
    progress = ImportProgress(5, 1, 1.0, {0: 0}, dead_letters=2)
    assert command._shown(progress, 5.0) == "5 records, 5 records/s, lag none, 2 dead letters"
