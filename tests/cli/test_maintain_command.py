"""`pylogtable maintain`, the command that schedulers run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pylogtable.__main__ import main

# --- the command -----------------------------------------------------------------------------


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pylogtable", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on standard error, and nothing else anywhere."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("pylogtable: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    return err


def test_the_command_reports_its_work_and_fails_if_a_topic_fails(broken_store: Path) -> None:
    ran = command("maintain", broken_store)
    assert ran.returncode == 1
    lines = ran.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["orders", "users"]
    assert "merged 4 into 1, vacuum removed 0 files; " in lines[0]
    assert "compaction removed 6 records" in lines[1]
    assert ran.stderr.startswith("pylogtable: broken: CorruptTopicError: ")
    assert len(ran.stderr.splitlines()) == 1
    assert "Traceback" not in ran.stderr


def test_the_command_gives_json(broken_store: Path) -> None:
    ran = command(
        "maintain", broken_store, "--topic", "users", "--topic", "orders", "--output", "json"
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    users, orders = json.loads(ran.stdout)
    assert list(users) == [
        "topic",
        "retention",
        "compaction",
        "merge",
        "publication",
        "vacuum",
        "group_expiry",
        "seconds",
        "error",
        "dry_run",
    ]
    assert (users["topic"], users["retention"], users["error"]) == ("users", None, None)
    compaction = users["compaction"]
    assert compaction["operation"] == "compact"
    assert (compaction["units"], compaction["skipped"]) == (1, 0)
    assert (compaction["segments_in"], compaction["segments_out"]) == (3, 1)
    assert (compaction["records_in"], compaction["records_removed"]) == (12, 6)
    assert compaction["bytes_in"] > compaction["bytes_out"] > 0
    assert users["vacuum"]["files"] == []
    assert not users["vacuum"]["dry_run"]
    assert orders["retention"]["log_starts"] == {}
    assert (orders["topic"], orders["compaction"]) == ("orders", None)


def test_json_includes_failures(broken_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["maintain", str(broken_store), "--output", "json", "--no-vacuum"]) == 1
    out, err = capsys.readouterr()
    reports = {report["topic"]: report for report in json.loads(out)}
    assert reports["broken"]["error"].startswith("CorruptTopicError")
    assert reports["users"]["vacuum"] is None
    assert err.count("\n") == 1


def test_wrong_usage_is_status_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYLOGTABLE_STORE", raising=False)
    ran = command("maintain")
    assert ran.returncode == 2
    assert "usage: pylogtable maintain" in ran.stderr
    assert ran.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [[], ["mantain", "x"], ["maintain", "x", "--output", "xml"], ["maintain", "x", "y"]],
)
def test_other_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_no_store_and_no_topic(
    broken_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = command("maintain", tmp_path / "nowhere")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == f"pylogtable: there is no topic in file://{tmp_path}/nowhere\n"
    assert not (tmp_path / "nowhere").exists()
    assert main(["maintain", str(broken_store), "--topic", "nope"]) == 1
    assert "nope: TopicNotFoundError: there is no topic at " in complaint(capsys)
    assert main(["maintain", str(broken_store), "--topic", "no/pe"]) == 1
    assert "no/pe: InvalidRequestError" in complaint(capsys)
    assert main(["maintain", "ftp://host/logs"]) == 1
    assert "ftp: is not supported" in complaint(capsys)


@pytest.mark.parametrize("options", ["{secret", "[1]", "", '"x"'])
def test_storage_options_must_be_a_json_object(
    broken_store: Path, options: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["maintain", str(broken_store), "--storage-options", options]) == 2
    told = complaint(capsys)
    assert "--storage-options " in told
    assert "secret" not in told


def test_storage_options(broken_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["maintain", str(broken_store), "--topic", "users", "--storage-options", '{"a": 1}']
    assert main(arguments) == 0
    assert capsys.readouterr().err == ""


def test_on_a_terminal_maintain_shows_its_progress(
    broken_store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["maintain", str(broken_store), "--topic", "users", "--topic", "orders"]) == 0
    assert capsys.readouterr().err == "[1/2] users …\n[2/2] orders …\n"
