"""`pylogtable prove`."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run, start
from tests.cli.test_program import until
from tests.documents import quoted, read, section, table

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")

GUIDE = "pylogtable/cli/README.md"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty store."""
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


def test_prove_reports_as_json_in_the_documented_shape(run: Run, place: Path) -> None:
    told = run("prove", place, "--minutes", "0.01", "--processes", "2", "--output", "json")
    assert told.status == 0, told
    report = told.json
    shape = section(read(GUIDE), "## Prove a store").partition("`--output json` prints")[2]
    documented = {name for cells in table(shape) for name in quoted(cells[0])}
    assert set(report) == documented
    assert report["sound"] is True
    assert report["evidence"] is None
    assert {row["operation"] for row in report["operations"]} >= {"append", "poll"}
    assert list(place.iterdir()) == []


def test_prove_reports_as_text_and_keeps_what_it_is_told_to(run: Run, place: Path) -> None:
    page = place.parent / "proof.html"
    options = ("--processes", "1", "--faults", "none", "--seed", "7", "--keep", "--html", page)
    told = run("prove", place, "--minutes", "0.01", *options)
    assert told.status == 0, told
    assert told.lines[0].split()[:4] == ["OPERATION", "OK", "FAILED", "UNKNOWN"]
    assert told.lines[-1].startswith(f"file://{place}: no anomaly in ")
    assert told.lines[-1].endswith("(seed 7)")
    [kept] = place.iterdir()
    assert kept.name.startswith("_prove-")
    assert f"the topic: file://{kept}" in told.lines
    [history] = [line for line in told.lines if line.startswith("recorded operations: ")]
    shutil.rmtree(history.removeprefix("recorded operations: "))
    html = page.read_text(encoding="utf-8")
    assert html.startswith("<!DOCTYPE html>")
    assert "no anomaly in" in html


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--minutes", "0"], "minutes must be above 0"),
        (["--minutes", "nan"], "minutes must be above 0"),
        (["--processes", "0"], "at least 1"),
        (["--faults", "fire"], "kills, pauses, skew, replies"),
        (["--html", "nowhere/proof.html"], "there is no directory nowhere"),
    ],
)
def test_bad_input_is_wrong_usage(run: Run, place: Path, options: list[str], words: str) -> None:
    run("prove", place, *options).failed(words, status=2)


def test_a_place_that_is_not_there_is_wrong_usage(run: Run, place: Path) -> None:
    run("prove", place / "nowhere").failed("there is no directory", status=2)


def test_ctrl_c_ends_a_proof_with_a_report(place: Path) -> None:
    running = start("prove", place, "--processes", "1", "--output", "json")
    assert running.stdout is not None
    until(lambda: bool(list(place.glob("_prove-*/log/_groups/*/*"))), running)
    running.send_signal(signal.SIGINT)
    out = running.stdout.read()
    assert running.wait(60) == 130
    assert b'"ended_early": true' in out
    assert list(place.iterdir()) == []
