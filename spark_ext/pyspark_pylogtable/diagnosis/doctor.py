"""`doctor`: what works in a Spark session, as one report to read or to paste."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyspark
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import pylogtable
from pylogtable import DoctorReport, LogTableError
from pylogtable.engine import DoctorCheck, left_probe, portable_options
from pyspark_pylogtable.diagnosis import facts as facts_module
from pyspark_pylogtable.diagnosis import worker_store
from pyspark_pylogtable.diagnosis.bounded import bounded, is_connect
from pyspark_pylogtable.diagnosis.facts import Facts, collect
from pyspark_pylogtable.diagnosis.judgement import (
    FAILED,
    OK,
    WARNING,
    advice_for,
    judge_native,
    judge_package,
    judge_python,
    judge_race,
    judge_tasks,
    judge_variables,
    judge_workers,
    missing_variables,
    packages_to_ask_for,
    reason,
    scheme_of,
    variables_to_ask_for,
)
from pyspark_pylogtable.diagnosis.secrets import Secrets
from pyspark_pylogtable.registration import register
from pyspark_pylogtable.table.log_table import LogTable

#: So many tasks are tried: they are small, and a few machines show what all have.
TASKS = 4
#: So long a store may take for one answer, if the caller does not say. Else it is 120 s.
STORE_SECONDS = 20
_ROWS = 1000


class SparkReport(DoctorReport):
    """The result of `doctor`: all checks in order. It is true if none failed, prints as a list of
    checks, and is a table in a notebook. `url` is that of the store, or empty."""

    @property
    def verdict(self) -> str:
        """The last line of the report."""
        place = f"pylogtable on {self.url}" if self.url else "pylogtable"
        return f"{place} {'works' if self else 'does not work'} in this Spark session"


def doctor(
    spark: SparkSession | None = None,
    store_url: str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    timeout_seconds: float = 120,
) -> SparkReport:
    """Find out what works in this Spark session, classic or Connect: versions on the driver and on
    the workers, the data source, and, with a store, what both may do there. Call it in the first
    cell on a new platform.

    >>> pyspark_pylogtable.doctor(spark, "s3://bucket/logs")

    It raises no errors, they are in the report. Without `spark` it is the session that is there, or
    a new one. Each step of Spark may take `timeout_seconds`. In the store it writes a folder
    `_doctor-…`, which it removes. No secret is in the report.
    """
    examination = _Examination(store_url, storage_options or {}, timeout_seconds)
    checks = tuple(map(examination.secrets.hidden, examination.checks(spark)))
    return SparkReport(store_url or "", checks)


class _Examination:
    def __init__(self, url: str | None, options: Mapping[str, Any], seconds: float) -> None:
        self._url = url
        self._options = {"timeout_seconds": STORE_SECONDS, **options} if url else {}
        self._has_options = bool(options)
        self._seconds = seconds
        self._scheme = scheme_of(url)
        self.secrets = Secrets(options)

    def checks(self, spark: SparkSession | None) -> Iterator[DoctorCheck]:
        """All checks in order. Without workers, nothing further is asked of Spark."""
        try:
            self._spark = spark or bounded(None, self._seconds, SparkSession.builder.getOrCreate)
            here = bounded(self._spark, self._seconds, self._kind_of_session)
        except Exception as error:
            yield _failed("session", error)
            return
        self._here = here
        yield self._session()
        yield from self._packages_and_source()
        if self._url is not None:
            yield from self._store(self._url)

    def _kind_of_session(self) -> str:
        """`client` or `driver`: what this process is."""
        self._version = self._spark.version
        return "client" if is_connect(self._spark) else "driver"

    def _session(self) -> DoctorCheck:
        kind = "Spark Connect" if self._here == "client" else "classic"
        found = f"Spark {self._version}, {kind}, pyspark {pyspark.__version__} on the {self._here}"
        if not hasattr(self._spark, "dataSource"):
            return DoctorCheck(
                "session", FAILED, found, "format('pylogtable') needs Python data sources: Spark 4"
            )
        if self._version.split(".")[:2] != pyspark.__version__.split(".")[:2]:
            return DoctorCheck(
                "session",
                WARNING,
                found,
                f"use the pyspark of this Spark: pip install 'pyspark=={self._version}'. On a "
                "platform, install pylogtable without the extra [spark], which replaces pyspark",
            )
        return DoctorCheck("session", OK, found)

    def _packages_and_source(self) -> Iterator[DoctorCheck]:
        names = packages_to_ask_for(self._scheme)
        variables = variables_to_ask_for(self._scheme)
        self._workers: list[Facts] = []
        mine = collect(names, variables)
        try:
            self._workers = self._facts_of_workers(names, variables)
        except Exception as error:
            yield _failed("workers", error)
        else:
            yield judge_workers(self._workers)
            yield judge_python(self._here, mine, self._workers)
            for name in names:
                yield judge_package(name, self._here, mine, self._workers)
            if self._scheme:
                yield judge_variables(
                    self._here, mine, self._workers, has_options=self._has_options
                )
        self._missing = missing_variables(mine, self._workers)
        yield self._registration()

    def _facts_of_workers(self, names: Sequence[str], variables: Sequence[str]) -> list[Facts]:
        cloudpickle.register_pickle_by_value(facts_module)  # type: ignore[no-untyped-call]
        try:
            texts = self._run_tasks(lambda _: json.dumps(collect(names, variables)), TASKS)
        finally:
            cloudpickle.unregister_pickle_by_value(facts_module)  # type: ignore[no-untyped-call]
        return [json.loads(text) for text in texts]

    def _run_tasks(self, function: Callable[[int], str], tasks: int) -> list[str]:
        """The result of each task. A plain function needs neither pyarrow nor pandas there."""
        run = F.udf(function, "string", useArrow=False).asNondeterministic()
        df = self._spark.range(0, tasks, 1, tasks).select(run("id").alias("found"))
        rows = bounded(self._spark, self._seconds, df.collect)
        return [row["found"] for row in rows]

    def _registration(self) -> DoctorCheck:
        name, found = "registration", "Spark finds format('pylogtable') by itself"
        missing = self._error_of_source()
        if missing is None:
            return DoctorCheck(name, OK, found)
        try:
            bounded(self._spark, self._seconds, partial(register, self._spark))
        except Exception as error:
            return _failed(name, error)
        after = self._error_of_source()
        if after is not None:
            return _failed(name, after)
        return DoctorCheck(
            name,
            WARNING,
            "Spark finds format('pylogtable') only after register(spark)",
            "call pyspark_pylogtable.register(spark) at the start of each session",
        )

    def _error_of_source(self) -> Exception | None:
        """Why Spark has no such source. With a schema it is only looked up, and opens nothing."""
        reader = self._spark.read.format("pylogtable").schema("value binary")
        try:
            bounded(self._spark, self._seconds, lambda: reader.load().schema)
        except Exception as error:
            return error
        return None

    def _store(self, url: str) -> Iterator[DoctorCheck]:
        diagnosis = pylogtable.diagnose(url, storage_options=self._options)
        for check in diagnosis.checks:
            yield DoctorCheck(
                f"{self._here}: {check.name}", check.status, check.detail, check.advice
            )
        if not self._workers:
            return
        if not diagnosis:
            yield from self._workers_without_driver(url)
            return
        try:
            with left_probe(url, self._options) as folder:
                yield from self._workers_with_driver(url, folder, diagnosis)
                yield from self._topic(f"{url.rstrip('/')}/{folder}/topic")
        except LogTableError as error:
            yield _failed(f"{self._here}: probe", error)

    def _workers_without_driver(self, url: str) -> Iterator[DoctorCheck]:
        """The whole diagnosis on one worker: it may have what the driver has not."""
        options = self._options
        try:
            (text,) = self._run_tasks(lambda _: worker_store.examine(url, options, None), 1)
        except Exception as error:
            yield _failed("workers: store", error)
            return
        for check in worker_store.parse(text)[0]:
            yield judge_tasks(check.name, [check], driver_passed=False, missing=())

    def _workers_with_driver(
        self, url: str, folder: str, diagnosis: DoctorReport
    ) -> Iterator[DoctorCheck]:
        options = self._options
        try:
            texts = self._run_tasks(lambda _: worker_store.examine(url, options, folder), TASKS)
        except Exception as error:
            yield _failed("workers: store", error)
            return
        found = [worker_store.parse(text) for text in texts]
        by_name: dict[str, list[DoctorCheck]] = {}
        for checks, _ in found:
            for check in checks:
                by_name.setdefault(check.name, []).append(check)
        for name, checks in by_name.items():
            yield judge_tasks(name, checks, driver_passed=True, missing=self._missing)
        if all(check.status != FAILED for checks in by_name.values() for check in checks):
            yield judge_race(sum(won for _, won in found), len(found))

    def _topic(self, path: str) -> Iterator[DoctorCheck]:
        """A topic that Spark writes and reads, by the data source and by its own Parquet reader."""
        store_url, name = pylogtable.split_topic_url(path)
        store = pylogtable.open(store_url, storage_options=self._options)
        store.create_topic(name, partitions=2, config={"inline.max.bytes": 0})
        for step, run in (
            ("write", self._write),
            ("read", self._read),
            ("native read", self._read_natively),
        ):
            try:
                check = bounded(self._spark, self._seconds, partial(run, path))
            except Exception as error:
                check = _failed(step, error)
            yield check
            if check.status == FAILED and step == "write":
                return

    def _write(self, path: str) -> DoctorCheck:
        rows = self._spark.range(_ROWS).selectExpr("string(id) AS key", "string(id) AS value")
        writer = rows.write.format("pylogtable").mode("append")
        writer.option("storageOptions", self._options_as_text()).save(path)
        return DoctorCheck("write", OK, f"df.write.format('pylogtable') wrote {_ROWS} rows")

    def _read(self, path: str) -> DoctorCheck:
        reader = self._spark.read.format("pylogtable")
        df = reader.option("storageOptions", self._options_as_text()).load(path)
        return _counted("read", "spark.read.format('pylogtable')", df.count())

    def _options_as_text(self) -> str:
        return json.dumps(portable_options(self._options))

    def _read_natively(self, path: str) -> DoctorCheck:
        table = LogTable.for_path(self._spark, path, storage_options=self._options)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            df = table.to_df()
        check = _counted("native read", "LogTable.to_df", df.count())
        why = next(
            (str(one.message) for one in told if "Spark cannot read" in str(one.message)), ""
        )
        return check if check.status == FAILED or not why else judge_native(self._scheme, why)


def _counted(name: str, what: str, rows: int) -> DoctorCheck:
    if rows != _ROWS:
        return DoctorCheck(name, FAILED, f"{what} has {rows} of {_ROWS} rows")
    return DoctorCheck(name, OK, f"{what} has all {_ROWS} rows")


def _failed(name: str, error: Exception) -> DoctorCheck:
    return DoctorCheck(name, FAILED, reason(error), advice_for(error))
