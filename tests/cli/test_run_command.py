"""`pylogtable run`: what it prints, how it ends, what it refuses."""

from __future__ import annotations

import json
import re
import signal
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

import pylogtable
from pylogtable.cli.session import BROKEN_PIPE
from pylogtable.format.paths import commit_path
from pylogtable.run import JOB_NAMES
from tests.builders import kafka
from tests.cli.conftest import AtTerminal, Run, start


@pytest.fixture
def published(store_dir: Path) -> pylogtable.Topic:
    topic = pylogtable.open(store_dir).create_topic("t", config={"publish.formats": "delta"})
    topic.append(kafka(["a", "b"]))
    return topic


def test_it_runs_until_sigterm_and_publishes_what_comes_meanwhile(
    published: pylogtable.Topic,
) -> None:
    program = start("run", "--every", "50ms", "--output", "json")
    assert program.stdout is not None
    first = json.loads(program.stdout.readline())
    assert (first["topic"], first["job"]) == ("t", "publication")
    assert datetime.fromisoformat(first["time"]) <= datetime.now(timezone.utc)
    version = published.append(kafka(["c"])).version
    table = json.loads(program.stdout.readline())["report"]["tables"][0]
    assert table["format"] == "delta"
    assert table["version"] >= version
    program.send_signal(signal.SIGTERM)
    _, err = program.communicate(timeout=60)
    assert (program.returncode, err) == (143, b"")
    (status,) = published.describe().published
    assert status.lag_records == 0
    # Its claim is gone, so another process would begin at once.
    folder = Path(published.url).parent / "run=members"
    assert not folder.exists() or not list(folder.iterdir())


def test_damaged_topic_that_is_named_does_not_stop_the_others(
    published: pylogtable.Topic, store_dir: Path
) -> None:
    pylogtable.open(store_dir).create_topic("bad")
    (store_dir / "bad" / commit_path(0)).write_text("{")
    program = start("run", "--topics", "bad,t", "--jobs", "publication", "--output", "json")
    assert program.stdout is not None
    assert json.loads(program.stdout.readline())["topic"] == "t"
    program.send_signal(signal.SIGTERM)
    _, err = program.communicate(timeout=60)
    assert b"topic bad cannot be read" in err


def test_it_ends_if_nobody_reads_its_output_any_more(published: pylogtable.Topic) -> None:
    program = start("run", "--every", "50ms", "--jobs", "publication", "--output", "json")
    assert program.stdout is not None
    program.stdout.readline()
    program.stdout.close()
    published.append(kafka(["c"]))
    assert program.stderr is not None
    assert (program.wait(timeout=60), program.stderr.read()) == (BROKEN_PIPE, b"")
    program.stderr.close()


def test_new_topics_are_looked_after_and_claims_are_no_topics(store_dir: Path) -> None:
    program = start("run", "--every", "50ms", "--jobs", "publication", "--output", "json")
    store = pylogtable.open(store_dir)
    # Other folders are looked for when the process shows itself the first time.
    topic = store.create_topic("first", config={"publish.formats": "delta"})
    topic.append(kafka(["a"]))
    assert program.stdout is not None
    assert json.loads(program.stdout.readline())["topic"] == "first"
    assert store.topics() == ["first"]
    program.send_signal(signal.SIGINT)
    program.communicate(timeout=60)
    assert program.returncode == 130


def test_once_does_what_maintain_does(run: Run, published: pylogtable.Topic) -> None:
    done = run("run", "--once", "--yes", "--output", "json")
    assert (done.status, done.err) == (0, "")
    (report,) = done.json
    assert report["publication"]["tables"][0]["version"] == 1
    assert set(JOB_NAMES) - set(report) == {"mirror"}


def test_once_runs_the_jobs_and_topics_that_are_named(
    run: Run, published: pylogtable.Topic, store_dir: Path
) -> None:
    pylogtable.open(store_dir).create_topic("other")
    done = run("run", "--once", "--jobs", "merge,retention", "--topics", "t", "--output", "json")
    (report,) = done.json
    assert report["topic"] == "t"
    assert report["publication"] is report["vacuum"] is None
    assert report["merge"] is not None


def test_dry_run_changes_nothing(run: Run, published: pylogtable.Topic) -> None:
    version = published.version
    done = run("run", "--dry-run")
    assert (done.status, done.err) == (0, "")
    assert "would publish delta: a new table" in done.out
    assert published.version == version


def test_job_that_no_setting_asks_for_is_nothing_to_do(run: Run, clicks: pylogtable.Topic) -> None:
    done = run("run", "--once", "--jobs", "publication")
    assert done.out.startswith("clicks: nothing to do; ")


@pytest.mark.parametrize("jobs", [[], ["--jobs", "mirror"]], ids=["all", "mirror"])
class TestMirrorOnce:
    """`--once --mirror-to`, with all jobs and with no other."""

    @pytest.fixture
    def command(self, published: pylogtable.Topic, jobs: list[str], tmp_path: Path) -> list[str]:
        return ["run", "--once", "--mirror-to", str(tmp_path / "copies"), *jobs]

    def test_it_is_told_to_people(self, run: Run, command: list[str], tmp_path: Path) -> None:
        done = run(*command)
        assert (done.status, done.err) == (0, "")
        assert pylogtable.open(tmp_path / "copies").topic("t").count() == 2
        assert done.lines[-1].startswith("t: 2 records copied, ")
        assert len(done.lines) == (1 if "--jobs" in command else 2)

    def test_its_report_is_in_the_json(self, run: Run, command: list[str], tmp_path: Path) -> None:
        """As `mirror --output json` prints it."""
        (row,) = run(*command, "--output", "json").json
        assert (row["topic"], row["error"]) == ("t", None)
        (alone,) = run("mirror", "t", tmp_path / "others", "--output", "json").json
        assert row["mirror"].keys() == alone.keys()
        assert (row["mirror"]["records"], row["mirror"]["error"]) == (2, None)
        assert (row["merge"] is None) == ("--jobs" in command)

    def test_failure_is_told(
        self, run: Run, command: list[str], published: pylogtable.Topic, tmp_path: Path
    ) -> None:
        pylogtable.open(tmp_path / "copies").create_topic("t").append(kafka(["mine"]))
        done = run(*command, "--output", "json")
        assert done.status == 1
        (row,) = done.json
        assert row["error"] is None
        assert row["mirror"]["error"] == json.loads(done.err)["message"].removeprefix("t: ")

    def test_it_asks_on_a_terminal(
        self, at_terminal: AtTerminal, command: list[str], tmp_path: Path
    ) -> None:
        refused = at_terminal(*command, answer="n\n")
        assert refused.status == 1
        store = f"file://{tmp_path}"
        assert f"mirror 1 topic of {store}/logs to {store}/copies" in refused.err
        assert ("remove records" in refused.err) == ("--jobs" not in command)
        assert not (tmp_path / "copies").exists()
        assert at_terminal(*command, answer="y\n").status == 0
        assert pylogtable.open(tmp_path / "copies").topic("t").count() == 2

    def test_dry_run_says_what_would_be_mirrored(
        self, run: Run, command: list[str], tmp_path: Path
    ) -> None:
        copies = tmp_path / "copies"
        done = run(*command, "--dry-run")
        assert done.lines[-1] == f"t: would be mirrored to file://{copies}"
        (row,) = run(*command, "--dry-run", "--output", "json").json
        assert row["mirror"] == {"topic": "t", "to": f"file://{copies}", "dry_run": True}
        assert not copies.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--jobs", "publish"], ["no job 'publish'", "publication"]),
        (["--jobs", "mirror"], ["--mirror-to"]),
        (["--mirror-groups"], ["--mirror-to"]),
        (["--topics", "orderz"], ["orderz"]),
        (["--every", "0s"], ["--every"]),
        (["--every", "2d"], ["--every", "a day"]),
        (["--kafka-topic", "x"], ["--bootstrap-servers"]),
        (["--protect-group", "nobody", "--once"], ["nobody"]),
        (["--protect-group", "nobody"], ["nobody"]),
    ],
)
def test_bad_options_are_refused_before_anything_is_done(
    run: Run, published: pylogtable.Topic, arguments: list[str], words: list[str]
) -> None:
    version = published.version
    done = run("run", *arguments)
    assert done.status in (1, 2)
    assert all(word in done.err for word in words), done.err
    assert done.err.count("\n") == 1
    assert published.version == version


def test_people_are_told_what_it_looks_after(published: pylogtable.Topic) -> None:
    program = start("run", "--topics", "t", "--jobs", "merge,publication")
    assert program.stderr is not None
    line = program.stderr.readline().decode()
    assert re.fullmatch(r"looking after t of file://.+/logs: merge, publication\n", line)
    program.send_signal(signal.SIGTERM)
    program.communicate(timeout=60)


def test_topic_given_as_the_store_is_refused(run: Run, published: pylogtable.Topic) -> None:
    done = run("run", published.url.removeprefix("file://"))
    assert done.status == 1
    assert "t is a topic, and not a store" in done.err.splitlines()[-1]


def test_import_without_its_package_is_refused(
    run: Run, published: pylogtable.Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    done = run("run", "--kafka-topic", "x", "--bootstrap-servers", "b:1")
    done.failed("pip install 'pylogtable[kafka]'")


def test_damaged_topic_is_told_and_the_others_are_looked_after(broken_store: Path) -> None:
    store = pylogtable.open(broken_store)
    store.topic("users").alter(config={"publish.formats": "delta"})
    program = start(
        "run", broken_store, "--every", "50ms", "--jobs", "publication", "--output", "json"
    )
    assert program.stdout is not None
    assert json.loads(program.stdout.readline())["topic"] == "users"
    program.send_signal(signal.SIGTERM)
    _, err = program.communicate(timeout=60)
    told = json.loads(err.splitlines()[0])
    assert "topic broken cannot be read, and will be tried again" in told["warning"]
    assert (told["topic"], told["error"]) == ("broken", "CorruptTopicError")
    assert store.topic("users").describe().published[0].lag_records == 0


def test_lines_of_jobs_that_end_in_many_threads_do_not_mix(store_dir: Path) -> None:
    """The process has many topics; each line is read to its end."""
    store = pylogtable.open(store_dir)
    names = [f"t{n}" for n in range(40)]
    for name in names:
        store.create_topic(name, config={"publish.formats": "delta"}).append(kafka(["k"]))
    program = start("run", "--every", "50ms", "--jobs", "publication", "--output", "json")
    assert program.stdout is not None
    told = [json.loads(program.stdout.readline())["topic"] for _ in names]
    assert sorted(told) == sorted(names)
    program.send_signal(signal.SIGTERM)
    program.communicate(timeout=60)
