"""Closed standard streams, and a reader of the output that goes away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pylogtable
from tests.builders import kafka
from tests.cli.conftest import environment, start

PROGRAM = f"{sys.executable} -m pylogtable"


def bash(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script that calls the program as $P; its status is that of the program."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", script],
        env=environment(P=PROGRAM),
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_closed_pipe_ends_the_command_quietly(store_dir: Path) -> None:
    topic = pylogtable.open(store_dir).create_topic("t")
    topic.append(kafka([None] * 50_000, [b"x" * 50] * 50_000))
    running = start("consume", "t")
    assert running.stdout is not None
    assert running.stdout.readline() == b"x" * 50 + b"\n"
    running.stdout.close()
    assert running.stderr is not None
    assert running.stderr.read() == b""
    assert running.wait(60) == 141


@pytest.mark.parametrize("command", ["--help", "topics describe clicks", "consume clicks"])
def test_pipe_without_a_reader_ends_the_command_quietly(
    clicks: pylogtable.Topic, command: str
) -> None:
    """The pipe has lost its reader before the program starts."""
    reader, writer = os.pipe()
    os.close(reader)
    running = start(*command.split(), stdout=writer)
    os.close(writer)
    _, errors = running.communicate(timeout=120)
    assert (running.returncode, errors) == (141, b"")


@pytest.mark.parametrize("command", ["topics list", "consume clicks --group g", "--help"])
def test_closed_output_is_refused_in_one_line(clicks: pylogtable.Topic, command: str) -> None:
    ran = bash(f"$P {command} >&-")
    assert ran.returncode == 1
    assert ran.stderr == "pylogtable: standard output is closed; use > /dev/null to discard it\n"
    assert clicks.groups() == []


def test_nothing_is_appended_if_the_output_is_closed(clicks: pylogtable.Topic) -> None:
    assert bash("echo x | $P produce clicks >&-").returncode == 1
    assert clicks.count() == 4


def test_only_produce_refuses_closed_input(clicks: pylogtable.Topic) -> None:
    ran = bash("$P produce clicks <&-")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("pylogtable: standard input is closed")
    assert ran.stderr.count("\n") == 1
    listed = bash("$P topics list <&-")
    assert (listed.returncode, listed.stdout, listed.stderr) == (0, "clicks\n", "")
    asked = bash("$P topics delete clicks <&-")
    assert asked.returncode == 1
    assert asked.stderr.startswith("pylogtable: this would delete topic clicks")


def test_closed_error_output_drops_the_messages(clicks: pylogtable.Topic) -> None:
    """They must not go to standard output instead."""
    ran = bash("$P topics describe nope 2>&-")
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", "")
    ran = bash("$P topics list 0<&- 2>&-")
    assert (ran.returncode, ran.stdout) == (0, "clicks\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
def test_output_that_cannot_be_written_is_reported_in_one_line(clicks: pylogtable.Topic) -> None:
    for command in ("topics list", "consume clicks"):
        ran = bash(f"$P {command} > /dev/full")
        assert (ran.returncode, ran.stderr.count("\n")) == (1, 1), ran
        assert "No space left on device" in ran.stderr


def test_messages_come_again_once_the_disk_has_room(tmp_path: Path) -> None:
    """The log of a service is a file. A disk that was full for a moment must not end it."""
    code = (
        "from resource import *\n"
        "from pylogtable.cli.streams import write_error\n"
        "write_error('one')\n"
        "setrlimit(RLIMIT_FSIZE, (4, RLIM_INFINITY))\n"
        "write_error('two')\n"
        "setrlimit(RLIMIT_FSIZE, (RLIM_INFINITY, RLIM_INFINITY))\n"
        "write_error('three')\n"
    )
    with (tmp_path / "log").open("w") as log:
        ran = subprocess.run([sys.executable, "-c", code], env=environment(), stderr=log)
    assert ran.returncode == 0
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line for line in lines if line != "two"] == ["one", "three"]
