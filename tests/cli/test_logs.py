"""`--log-level` and `--log-format`: what the program writes to standard error."""

from __future__ import annotations

import json
import logging
import math
import re
import warnings
from typing import Any

import pytest

import pylogtable
from pylogtable.cli.messages import library_messages
from pylogtable.cli.session import Session
from pylogtable.log_lines import as_json, as_text
from tests.cli.conftest import Run

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def objects(err: str) -> list[dict[str, Any]]:
    """Each line of standard error, which is a JSON object with these fields at least."""
    found = [json.loads(line) for line in err.splitlines()]
    for one in found:
        assert re.fullmatch(TIME, one["time"])
        assert {"level", "logger", "message"} <= one.keys()
    return found


def test_nothing_is_logged_by_default(run: Run, clicks: pylogtable.Topic) -> None:
    assert run("merge", "clicks").err == ""


def test_what_is_done_is_logged_as_text(run: Run, clicks: pylogtable.Topic) -> None:
    done = run("--log-level", "info", "topics", "alter", "clicks", "--partitions", 3)
    line = done.err.splitlines()[0]
    assert re.match(rf"{TIME} INFO alter of topic clicks is version 2 store=file://", line)
    assert done.status == 0
    assert logging.getLogger("pylogtable").level == logging.NOTSET


def test_what_is_done_is_logged_as_json(run: Run, clicks: pylogtable.Topic) -> None:
    options = ("--log-level", "info", "--log-format", "json")
    done = run("topics", "alter", "clicks", "--partitions", 3, *options)
    line = objects(done.err)[0]
    assert line["logger"] == "pylogtable.commits"
    assert (line["level"], line["operation"], line["version"]) == ("INFO", "alter", 2)
    assert "Altered" in done.out


def test_requests_are_logged_for_debugging(run: Run, clicks: pylogtable.Topic) -> None:
    done = run("offsets", "clicks", "--log-level", "debug", "--log-format", "json")
    found = objects(done.err)
    assert {line["logger"] for line in found} == {"pylogtable.requests"}
    assert {"get"} <= {line["kind"] for line in found} <= {"get", "head", "list"}
    assert all("/clicks/" in line["key"] for line in found if line["kind"] == "get")


def test_error_is_a_json_line(run: Run, clicks: pylogtable.Topic) -> None:
    done = run("offsets", "nope", "--log-format", "json")
    assert done.status == 1
    [line] = objects(done.err)
    assert (line["level"], line["error"]) == ("ERROR", "TopicNotFoundError")
    assert (line["topic"], "exception" in line) == ("nope", False)
    [line] = objects(run("offsets", "nope", "--log-format", "json", "--verbose").err)
    assert "Traceback" in line["exception"]
    [line] = objects(run("offsets", "--log-format", "json", "--no-such-option").err)
    assert line["error"] == "UsageError"


def test_log_format_counts_for_messages_with_json_output(
    run: Run, clicks: pylogtable.Topic
) -> None:
    done = run("offsets", "nope", "--output", "json", "--log-format", "json")
    [line] = objects(done.err)
    assert line["error"] == "TopicNotFoundError"
    old = run("offsets", "nope", "--output", "json")
    assert json.loads(old.err).keys() == {"error", "message", "topic"}


@pytest.mark.filterwarnings("always")
def test_notes_warnings_and_progress_are_json_lines(run: Run, clicks: pylogtable.Topic) -> None:
    done = run("topics", "alter", "clicks", "--config", "cleanup.policy=compact")
    assert done.err.startswith("pylogtable: topic 'clicks' has 1 record(s) without a key")
    run("topics", "alter", "clicks", "--config", "cleanup.policy=delete")
    told = run(
        "topics", "alter", "clicks", "--config", "cleanup.policy=compact", "--log-format", "json"
    )
    [line] = objects(told.err)
    assert (line["level"], line["logger"]) == ("WARNING", "pylogtable.cli")
    assert f"pylogtable: {line['message']}\n" == done.err
    noted = run("groups", "list", "--log-format", "json")
    assert [line["level"] for line in objects(noted.err)] == ["INFO"]


@pytest.mark.filterwarnings("always")
def test_warnings_of_python_and_of_other_libraries_are_json_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    usual = logging.lastResort
    with library_messages(Session(log_format="json")):
        warnings.warn("of\nPython", stacklevel=1)
        assert logging.lastResort is not None
        other = {"name": "asyncio", "levelno": logging.ERROR, "msg": "of another"}
        logging.lastResort.handle(logging.makeLogRecord(other))
    assert logging.lastResort is usual
    found = objects(capsys.readouterr().err)
    assert [line["message"] for line in found] == ["of\nPython", "of another"]


def test_text_of_a_record_is_one_line() -> None:
    record = logging.makeLogRecord(
        {"levelname": "INFO", "msg": "%(topic)s\nis there", "args": {"topic": "a"}, "created": 0.25}
    )
    vars(record).update(topic="a", store="s3://b/a b", parts=[1, 2], share=0.5, nothing=None)
    assert as_text(record) == (
        '1970-01-01T00:00:00.250Z INFO a is there store="s3://b/a b" parts=[1, 2] share=0.5 '
        "nothing=null"
    )


class _Odd:
    def __str__(self) -> str:
        return "odd \udcff"


@pytest.mark.parametrize(
    "value",
    [b"\xff\x00", "\udcff\n\u2028", math.nan, -math.inf, 2**80, {1: {b"k": {2}}}, _Odd(), (None,)],
    ids=("bytes", "surrogate", "nan", "infinity", "large", "nested", "object", "tuple"),
)
def test_json_of_a_record_is_valid_whatever_its_values_are(value: object) -> None:
    record = logging.makeLogRecord({"msg": "%d", "args": (value,), "field": value})

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    line = as_json(record)
    assert line.isascii()
    assert "\n" not in line
    assert "field" in json.loads(line, parse_constant=refuse)


@pytest.mark.parametrize("output", ["text", "json"])
def test_traceback_that_the_library_logs_is_shown(
    capsys: pytest.CaptureFixture[str], output: str
) -> None:
    """It is a bug, so whoever reports it needs the traceback, in each format."""
    logger = logging.getLogger("pylogtable.run")
    with library_messages(Session(output=output)):
        try:
            raise ValueError("broken")
        except ValueError:
            logger.exception("the job of topic %(topic)s failed", {"topic": "t"}, extra={"n": 1})
    err = capsys.readouterr().err
    if output == "json":
        told = json.loads(err)
        assert told.pop("exception").endswith("ValueError: broken")
        assert told == {"warning": "the job of topic t failed", "n": 1}
    else:
        assert err.startswith("pylogtable: the job of topic t failed\nTraceback (most recent")
        assert err.endswith("ValueError: broken\n")


def test_exception_is_a_field() -> None:
    try:
        raise ValueError("broken")
    except ValueError as error:
        record = logging.makeLogRecord(
            {"msg": "it failed", "exc_info": (type(error), error, error.__traceback__)}
        )
    assert json.loads(as_json(record))["exception"].endswith("ValueError: broken")


def test_program_that_follows_says_so_in_json(
    run: Run, clicks: pylogtable.Topic, tmp_path: Any
) -> None:
    target = tmp_path / "copy"
    done = run("mirror", "clicks", target, "--log-format", "json", "--log-level", "info")
    texts = [line["message"] for line in objects(done.err)]
    assert "a mirror brought 4 records to topic clicks" in texts
