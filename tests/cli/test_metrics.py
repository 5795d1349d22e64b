"""`pylogtable metrics`, and the metrics that other commands serve."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

import pylogtable
from pylogtable.kafka import import_topic
from tests.builders import damage
from tests.cli.conftest import ROOT, Run
from tests.kafka.mock import mock_cluster
from tests.library.metrics.values import Values
from tests.prometheus.server import until


def test_it_prints_the_metrics_of_all_topics(run: Run, clicks: pylogtable.Topic) -> None:
    done = run("metrics")
    assert (done.status, done.err) == (0, "")
    found = Values(done.out)
    assert found.of("topic_records", topic="clicks") == 4
    assert found.of("partition_end_offset") is None
    assert Values(run("metrics", "--openmetrics").out).of("topic_records", topic="clicks") == 4
    of_partition = Values(run("metrics", "--per-partition").out).of(
        "partition_end_offset", partition="0"
    )
    assert of_partition == 3


def test_the_same_as_json(run: Run, clicks: pylogtable.Topic) -> None:
    found = {one["name"]: one["samples"] for one in run("metrics", "--output", "json").json}
    assert [one["value"] for one in found["pylogtable_topic_records"]] == [4]


def test_a_file_is_replaced_in_one_step(run: Run, clicks: pylogtable.Topic, tmp_path: Path) -> None:
    """Its inode is another one, and nothing is left beside it."""
    folder = tmp_path / "collector"
    folder.mkdir()
    target = folder / "pylogtable.prom"
    target.write_text("old")
    with target.open() as old:
        done = run("metrics", "-o", target)
        assert (done.status, done.out, done.err) == (0, "", "")
        assert old.read() == "old"
    assert Values(target.read_text()).of("topic_records") == 4
    assert os.listdir(folder) == ["pylogtable.prom"]
    run("metrics", "-o", folder / "no" / "such.prom").failed("cannot be written", "No such file")


def test_a_link_stays_and_its_file_is_replaced(
    run: Run, clicks: pylogtable.Topic, tmp_path: Path
) -> None:
    link = tmp_path / "link.prom"
    link.symlink_to("real.prom")
    for _ in range(2):  # the file is not there yet, then it is
        run("metrics", "-o", link)
        assert link.is_symlink()
        assert Values((tmp_path / "real.prom").read_text()).of("topic_records") == 4


def test_a_pipe_is_written_to(run: Run, clicks: pylogtable.Topic, tmp_path: Path) -> None:
    """As /dev/stdout is: a link to it."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run("metrics", "-o", link).status == 0
        assert Values(os.read(reader, 1 << 16).decode()).of("topic_records") == 4
    finally:
        os.close(reader)
    assert link.is_symlink()
    assert pipe.is_fifo()


def test_a_dash_is_standard_output(run: Run, clicks: pylogtable.Topic) -> None:
    assert Values(run("metrics", "-o", "-").out).of("topic_records") == 4


def test_a_damaged_topic_is_named_and_does_not_stop_it(run: Run, broken_store: Path) -> None:
    damage(broken_store / "users")
    done = run("metrics", broken_store)
    assert done.status == 0
    assert "not all can be measured" in done.err
    found = Values(done.out)
    assert found.of("topic_up", topic="orders") == 1
    assert found.of("topic_up", topic="users") == 0


@pytest.mark.parametrize("kind", ["empty", "missing", "file"])
def test_a_store_without_topics_is_most_likely_a_wrong_address(
    run: Run, tmp_path: Path, kind: str
) -> None:
    """Most stores have no folders. A local one that is not there is down."""
    path = tmp_path / kind
    if kind == "empty":
        path.mkdir()
    elif kind == "file":
        path.touch()
    done = run("metrics", path)
    assert done.status == 0
    assert "there is no topic in" in done.err
    assert Values(done.out).of("store_up") == (kind == "empty")


def test_topic_given_as_the_store_is_refused_as_run_refuses_it(
    run: Run, clicks: pylogtable.Topic
) -> None:
    folder = clicks.url.removeprefix("file://")
    told = run("metrics", folder)
    told.failed(f"{clicks.url} is a topic, and not a store: give the folder that it is in")
    assert told.out == ""
    assert run("run", folder).err.splitlines()[-1] == told.err.strip()


def scraped(address: str) -> Values:
    with urlopen(address) as reply:
        return Values(reply.read().decode())


@contextmanager
def serving(command: Sequence[str], folder: Path) -> Iterator[str]:
    """The address of the metrics of a program that runs, until SIGTERM ends it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pylogtable", *command, "--metrics-port", "0"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "metrics" in line)
        port = re.search(r"http://0\.0\.0\.0:(\d+)/metrics", said)
        assert port is not None
        yield f"http://127.0.0.1:{port[1]}/metrics"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 143


@pytest.mark.parametrize(
    "command",
    [["mirror", "clicks", "./copies", "--follow"], ["run", "--yes"]],
    ids=lambda command: command[0],
)
def test_a_program_serves_its_metrics_while_it_works(
    command: list[str], clicks: pylogtable.Topic, tmp_path: Path
) -> None:
    with serving(command, tmp_path) as address:
        asked = {"kind": "get", "outcome": "ok"}
        found = until(  # it serves before it asks the store for anything
            lambda: scraped(address),
            lambda found: found.of("request_duration_seconds_count", **asked),
            "requests",
        )
    assert found.of("build_info", command=command[0]) == 1


@pytest.mark.parametrize("command", ["run", "import"])
def test_a_program_tells_how_far_its_imports_are(
    store_dir: Path, tmp_path: Path, command: str
) -> None:
    store = pylogtable.open(store_dir)
    with mock_cluster() as cluster:
        name = cluster.new_topic()
        cluster.produce(name, 0, [b"a"])
        # The mock has no settings, which are asked for when the topic is created here.
        import_topic(store, name, bootstrap_servers=cluster.servers, copy_settings=False)
        cluster.produce(name, 0, [b"b", b"c"])
        asked = {
            "run": ["run", "--yes", "--kafka-topic", name],
            "import": ["kafka", "import", "--no-copy-settings", "--follow", "--topic", name],
        }[command]
        asked += ["--bootstrap-servers", cluster.servers]
        with serving(asked, tmp_path) as address:
            found = until(
                lambda: scraped(address),
                lambda found: (
                    found.of("copied_records_total", job_name="import", topic=name)
                    and found.of("topic_up", topic=name)  # an import tells its topic as it begins
                ),
                "records",
            )
    assert found.of("build_info", command=command) == 1
    assert found.of("copied_records_total", topic=name) == 2
    assert found.of("copy_last_progress_timestamp_seconds", topic=name)


def test_options_that_would_do_nothing_are_refused(run: Run, clicks: pylogtable.Topic) -> None:
    run("run", "--once", "--yes", "--metrics-port", "0").failed("--metrics-port", status=2)
    for option in (["--metrics-host", "127.0.0.1"], ["--metrics-per-partition"]):
        run("mirror", "clicks", "./copies", *option).failed("--metrics-port", status=2)
    for option in (["--out", "x.prom"], ["--openmetrics"]):
        run("metrics", *option, "--output", "json").failed("--output json", status=2)


def test_a_port_that_is_taken_is_named(run: Run, clicks: pylogtable.Topic) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = ("--metrics-port", port, "--metrics-host", "127.0.0.1")
        run("mirror", "clicks", "./copies", *options).failed(f"127.0.0.1:{port}", "--metrics-port")
