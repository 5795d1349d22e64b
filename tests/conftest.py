"""Fixtures that several folders share, how tests run side by side, and which may be skipped."""

from __future__ import annotations

import gc
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pylogtable
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import IN_FILES, Clock, damage, fill, make_store
from tests.depth import DEEP, load_hypothesis_profile
from tests.side_by_side import rank_of, unit_of
from tests.spark_home import spark_home

# Every JVM of the tests is young when it ends: to compile for the long run, to collect garbage with
# several threads, and to verify the classes of Spark, costs more than it brings.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions "
    "-XX:+IgnoreUnrecognizedVMOptions -XX:-BytecodeVerificationRemote",
)

# The processes of `pytest -n` inherit it.
if "SPARK_HOME" not in os.environ and (_home := spark_home()) is not None:
    os.environ["SPARK_HOME"] = _home.name

# A topic on a disk syncs every file that it writes, and there are tens of thousands here. In memory
# that takes no time. No test could tell the difference: none of them cuts the power.
_MEMORY, _ROOM_BYTES = "/dev/shm", 4 << 30
if os.path.isdir(_MEMORY) and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)

S3_KEY, S3_SECRET, S3_BUCKET = "AKIAKEYKEYKEY", "sEcReTsEcReT", "bucket"


load_hypothesis_profile()

#: Why a test may be skipped. A skip for any other reason fails the run: nobody would see that a
#: promise is not tested any more.
KNOWN_SKIPS = (
    r"no FUSE here",
    r"no Chromium here",
    r"root may write",
    r"cannot mount a tmpfs here",
    r"no jars of Delta and Iceberg",
    r"no \S+: make test-clouds brings one",
    r"no environment for a (cluster|Connect client)",
    r"no tools for the examples",
    r"no systemd-analyze here",
    r"no podman",
    r"no jars of a Kafka broker",
    r"no schema registry; `make test-kafka`",
    r"no Prometheus: make test-metrics runs one",
    r"no jars of Spark's Kafka connector",
    r"needs fork",  # Windows
    r"this pyarrow (writes no|tells no places of) Bloom filters",
    r"this pyarrow cannot limit the rows of a page",
    r"this polars reads no Iceberg files without field ids",
    r"Spark 4\.0 wants every column of a source in an INSERT",
    r"Spark 4\.0 has no pushFilters",
    r"Spark 4\.2 and newer",
    r"before Spark 4\.2 a run has one batch",
    r"Connect may plan again for each action",
    r"registers a class of this module",
    r"starts its own sessions",
    r"these tests run with Connect already",
    r"the jobs of a Spark Connect server cannot be counted",
    r"with Connect the function of foreachBatch runs in another process",
)
_skips: Counter[tuple[str, str]] = Counter()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "deep: runs in `make test-deep` only")
    config.addinivalue_line(
        "markers",
        "records_in(*places): where topics of the fixture `store` have their records, unless they "
        "set `inline.max.bytes`: files, or commits, the default, or once each",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker("records_in")
    if mark is not None and "in_files" in metafunc.fixturenames:
        assert set(mark.args) <= {"commits", "files"}
        metafunc.parametrize("in_files", [at == "files" for at in mark.args], ids=mark.args)


def pytest_report_header() -> str:
    return f"depth: {'deep' if DEEP else 'usual (make test-deep does more)'}"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _count_skip(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _count_skip(report)


def _count_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        _skips[str(reason).removeprefix("Skipped: "), report.nodeid.partition("::")[0]] += 1


def _unknown_skips() -> list[tuple[str, str]]:
    known = re.compile("|".join(KNOWN_SKIPS))
    return [skip for skip in _skips if not known.match(skip[0])]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    is_worker = hasattr(session.config, "workerinput")
    if not is_worker and exitstatus == pytest.ExitCode.OK and _unknown_skips():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if unknown := _unknown_skips():
        terminalreporter.section("skips that tests/conftest.py does not know", red=True)
        for reason, file in unknown:
            terminalreporter.line(f"{file}: {_skips[reason, file]} skipped: {reason}")


def pytest_collection_finish() -> None:
    """Thousands of collected tests live to the end, and Python's garbage collector would look at
    them again and again: a tenth of the processor time of all tests without Spark."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByUnit(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    config.option.loadscopereorder = False
    return ByUnit(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not DEEP and (deep := [item for item in items if item.get_closest_marker("deep")]):
        config.hook.pytest_deselected(items=deep)
        items[:] = [item for item in items if item not in deep]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank_of(item.nodeid))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def objects() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def in_files() -> bool:
    """False: small appends are in commits, as users have it. `records_in` says otherwise."""
    return False


@pytest.fixture
def store(objects: MemoryStore, clock: Clock, in_files: bool) -> Store:
    return make_store(objects, clock, in_files=in_files)


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of an S3 that lives in this process and has one bucket."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=S3_KEY,
        aws_secret_access_key=S3_SECRET,
        region_name="us-east-1",
    ).create_bucket(Bucket=S3_BUCKET)
    yield url
    server.stop()


@pytest.fixture
def broken_store(tmp_path: Path) -> Path:
    """A store with three topics, of which the first is damaged. Their records are in files."""
    store = pylogtable.open(tmp_path / "logs")
    for name in ("broken", "orders", "users"):
        policy = {"cleanup.policy": "compact" if name == "users" else "delete"}
        fill(store.create_topic(name, config={**IN_FILES, **policy}))
    damage(tmp_path / "logs" / "broken")
    return tmp_path / "logs"
