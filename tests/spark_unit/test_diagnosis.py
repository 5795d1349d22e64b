"""The doctor for Spark, without Spark: from facts to advice, secrets, and calls that hang."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark import cloudpickle

from pylogtable.engine import DoctorCheck
from pyspark_pylogtable.diagnosis import facts as facts_module
from pyspark_pylogtable.diagnosis.bounded import NoAnswer, bounded
from pyspark_pylogtable.diagnosis.facts import Facts, collect
from pyspark_pylogtable.diagnosis.judgement import (
    advice_for,
    judge_native,
    judge_package,
    judge_python,
    judge_race,
    judge_tasks,
    judge_variables,
    reason,
    scheme_of,
)
from pyspark_pylogtable.diagnosis.secrets import Secrets

SECRET = "wJalrXUtnFEMI/K7MDENG"


def facts(
    python: str = "3.11.7",
    variables: tuple[str, ...] = (),
    **packages: str | None,
) -> Facts:
    return {
        "machine": "m",
        "process": 1,
        "executable": "/usr/bin/python3",
        "python": python,
        "packages": dict(packages),
        "variables": list(variables),
    }


def test_workers_without_the_package_are_told_how_to_get_it() -> None:
    check = judge_package(
        "pylogtable", "driver", facts(pylogtable="1.0"), [facts(pylogtable=None)] * 2
    )
    assert check.status == "failed"
    assert check.detail == "1.0 on the driver, missing on the workers"
    assert "pip install pylogtable" in check.advice
    assert "'Install' in the Spark guide" in check.advice


@pytest.mark.parametrize(
    ("name", "driver", "worker", "status", "words"),
    [
        ("pylogtable", "1.0", "1.0", "ok", ""),
        ("pylogtable", "1.0", "1.1", "failed", "one version of pylogtable"),
        ("pylogtable", "1.0", "!ImportError: no msgspec", "failed", "no msgspec"),
        ("pyspark", "4.1.1", "4.3.0", "warning", "one version of pyspark"),
        ("pyarrow", "26.0.1", "17.0.0", "failed", "pyarrow 18 or newer"),
        ("pyarrow", "18.0.0", "18.0.0", "ok", ""),
        ("pandas", "2.3", None, "warning", "LogTable.append"),
        ("pandas", "2.3", "2.2", "ok", ""),
        ("s3fs", "2026.1", None, "failed", "pip install 'pylogtable[s3]'"),
        ("adlfs", None, None, "failed", "pip install 'pylogtable[azure]'"),
    ],
)
def test_versions(
    name: str, driver: str | None, worker: str | None, status: str, words: str
) -> None:
    check = judge_package(name, "driver", facts(**{name: driver}), [facts(**{name: worker})])
    assert check.status == status
    assert words in check.advice
    assert bool(check.advice) == (status != "ok")


def test_another_python_on_the_workers_is_refused_but_not_another_patch() -> None:
    assert judge_python("driver", facts("3.11.7"), [facts("3.11.2")]).status == "ok"
    check = judge_python("client", facts("3.11.7"), [facts("3.11.7"), facts("3.12.1")])
    assert check.status == "failed"
    assert "PYSPARK_PYTHON" in check.advice
    assert "3.11" in check.advice


def test_variables_that_only_the_driver_has() -> None:
    mine = facts(variables=("AWS_ACCESS_KEY_ID", "AWS_REGION"))
    check = judge_variables("driver", mine, [facts(variables=("AWS_REGION",))], has_options=False)
    assert check.status == "warning"
    assert "spark.executorEnv.AWS_ACCESS_KEY_ID=…" in check.advice
    assert "executorEnv.AWS_REGION" not in check.advice
    assert "environment variables of the compute" in check.advice
    assert judge_variables("driver", mine, [mine], has_options=False).status == "ok"


def test_workers_that_are_refused_where_the_driver_is_not_lack_variables() -> None:
    passed = DoctorCheck("list", "ok", "3 folder(s)")
    refused = DoctorCheck("list", "failed", "NoCredentialsError", "allow listing")
    check = judge_tasks("list", [passed, refused, passed], True, ["AWS_PROFILE"])
    assert (check.name, check.status) == ("workers: list", "failed")
    assert check.detail == "NoCredentialsError (in 1 of 3 tasks)"
    assert check.advice.startswith("give them to the workers: --conf spark.executorEnv.AWS_PROFILE")
    assert check.advice.endswith("allow listing")
    assert judge_tasks("list", [refused], False, ["AWS_PROFILE"]).advice == "allow listing"


def test_two_tasks_that_create_one_object_fail_the_race() -> None:
    assert judge_race(1, 4).status == "ok"
    check = judge_race(2, 4)
    assert check.status == "failed"
    assert "2 of 4" in check.detail
    assert "conditional puts" in check.advice


@pytest.mark.parametrize(
    ("text", "line", "advice"),
    [
        (
            "An error occurred while calling o98.save.\n: org.apache.spark.SparkException: "
            "[DATA_SOURCE_NOT_FOUND] Failed to find it\n\tat org.apache.x(y.scala:7)",
            "org.apache.spark.SparkException: [DATA_SOURCE_NOT_FOUND] Failed to find it",
            "pip install pylogtable",
        ),
        (
            "[FAILED] stage 1\nTraceback (most recent call last):\n  File x\n"
            "ModuleNotFoundError: No module named 'pyspark_pylogtable'\n\nJVM stacktrace:\n"
            "java.lang.RuntimeError: no",
            "ModuleNotFoundError: No module named 'pyspark_pylogtable'",
            "'Install' in the Spark guide",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than 3.11",
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than 3.11",
            "PYSPARK_PYTHON",
        ),
        ("", "RuntimeError", ""),
    ],
)
def test_error_of_spark_is_one_line_with_advice(text: str, line: str, advice: str) -> None:
    error = RuntimeError(text)
    assert reason(error) == line
    assert advice in advice_for(error)


@pytest.mark.parametrize(
    ("scheme", "words"),
    [("s3", "hadoop-aws"), ("gs", "gcs-connector"), ("abfs", "hadoop-azure"), ("", "this store")],
)
def test_native_reads_need_a_file_system_of_the_cloud(scheme: str, words: str) -> None:
    check = judge_native(scheme, "no file system")
    assert (check.status, check.detail) == ("warning", "no file system")
    assert words in check.advice


def test_schemes() -> None:
    given = ["s3a://b/x", "abfss://c@a.dfs.core.windows.net/x", "gcs://b", "/x", "dbfs:/Volumes/x"]
    assert [scheme_of(url) for url in given] == ["s3", "abfs", "gs", "", ""]
    assert scheme_of(None) == ""


def test_facts_have_names_of_variables_and_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    found = collect(
        ["pylogtable", "pyarrow", "no_such_package"], ["AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"]
    )
    assert found["variables"] == ["AWS_SECRET_ACCESS_KEY"]
    assert SECRET not in repr(found)
    assert found["packages"]["pylogtable"] == "0.1.0"
    assert found["packages"]["no_such_package"] is None


def test_facts_are_collected_where_the_package_is_not(tmp_path: Path) -> None:
    """A worker unpickles the function without this package, and finds that it is missing."""
    cloudpickle.register_pickle_by_value(facts_module)
    try:
        pickled = cloudpickle.dumps(lambda: collect(["pylogtable", "pyspark"], []))
    finally:
        cloudpickle.unregister_pickle_by_value(facts_module)
    (tmp_path / "function").write_bytes(pickled)
    code = (
        "import pathlib, pickle, sys\n"
        "found = pickle.loads(pathlib.Path('function').read_bytes())()\n"
        "print(found['packages'])\n"
    )
    bare = {
        **os.environ,
        "PYTHONPATH": os.path.dirname(os.path.dirname(cloudpickle.__file__)) + "/..",
    }
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=bare,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "'pylogtable': None" in done.stdout


def test_secrets_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "from-the-environment")
    options = {
        "secret": SECRET,
        "endpoint_url": "http://store:9000",
        "client_kwargs": {"aws_session_token": "FwoGZXIvYXdzEBYaD"},
        "connection_string": "AccountName=a;AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1;",
    }
    told = (
        f"cannot list http://store:9000 with {SECRET}, FwoGZXIvYXdzEBYaD, "
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1 and from-the-environment"
    )
    hidden = Secrets(options).hidden(DoctorCheck("list", "failed", told, told))
    assert hidden.detail == "cannot list http://store:9000 with ***, ***, *** and ***"
    assert hidden.advice == hidden.detail


def test_call_that_never_returns_is_left_behind() -> None:
    never = threading.Event()
    with pytest.raises(NoAnswer, match=r"no answer in 0\.01 s"):
        bounded(None, 0.01, never.wait)
    never.set()


def test_call_returns_its_result_or_its_error() -> None:
    assert bounded(None, 60, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        bounded(None, 60, lambda: 1 / 0)
