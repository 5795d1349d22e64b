"""Imports from Kafka in a loop, on librdkafka's mock of a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable

from pylogtable.kafka import ImportProgress, import_topic
from pylogtable.metrics.exposition import text_of
from pylogtable.metrics.process_account import ProcessAccount
from pylogtable.run import JobRun, KafkaImports, Loop, RunOptions
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import runtime
from tests.kafka.mock import mock_cluster
from tests.library.metrics.values import Values


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_import_tells_its_progress_and_is_counted_once(objects: MemoryStore) -> None:
    store = Store(objects, runtime(now_ms))
    account = ProcessAccount(store.url)
    while_it_works: list[Values] = []

    def values() -> Values:
        return Values(text_of(account.samples(), openmetrics=True))

    def progress_of(topic: str) -> Callable[[ImportProgress], None]:
        count = account.progress_of("import", topic, now_ms)

        def tell(at: ImportProgress) -> None:
            count(at)
            if at.records:
                while_it_works.append(values())
                loop.stop()

        return tell

    def count_job(run: JobRun) -> None:
        assert run.error is None
        account.job_ran(run)

    with mock_cluster() as cluster:
        name = cluster.new_topic()
        cluster.produce(name, 0, [b"a"])
        # The mock has no settings, which are asked for when the topic is created here.
        import_topic(store, name, bootstrap_servers=cluster.servers, copy_settings=False)
        cluster.produce(name, 0, [b"b", b"c"])
        imports = KafkaImports(cluster.servers, [name], progress_of=progress_of)
        loop = Loop(store, RunOptions(imports=imports, on_job=count_job))
        loop.run()
    mine = {"topic": name, "job_name": "import"}
    assert store.topic(name).count() == 3
    during, after = while_it_works[0], values()
    for found in (during, after):
        assert found.of("copied_records_total", **mine) == 2
        assert found.of("copied_bytes_total", **mine) == during.of("copied_bytes_total", **mine)
    assert during.of("copied_bytes_total", **mine)
    assert during.of("copy_lag_records", **mine) == 0
    assert during.of("copy_last_progress_timestamp_seconds", **mine)
    assert during.of("job_runs_total", **mine) is None
    # Another process may have it now, and tells these.
    assert after.of("copy_lag_records", **mine) is None
    assert after.of("copy_last_progress_timestamp_seconds", **mine) is None
    assert after.of("job_runs_total", outcome="ok", **mine) == 1
