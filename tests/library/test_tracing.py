"""Spans of OpenTelemetry: of appends, reads, jobs and commits, if a program has set them up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pylogtable import InvalidRequestError, StorageError
from pylogtable.engine import plan_append
from pylogtable.kafka import import_topic
from pylogtable.operation import Threads
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import Clock, ints, kafka, make_store
from tests.kafka.mock import mock_cluster
from tests.run.loops import driven


class Spans(InMemorySpanExporter):
    """The spans of one test. The provider outlives it, since a process sets one only once."""

    is_on = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return super().export(spans) if self.is_on else SpanExportResult.SUCCESS


@pytest.fixture(scope="session")
def exporter() -> Spans:
    exporter = Spans()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(exporter: Spans) -> Iterator[Spans]:
    exporter.is_on = True
    yield exporter
    exporter.is_on = False
    exporter.clear()


def by_name(spans: Spans, name: str) -> list[ReadableSpan]:
    return [one for one in spans.get_finished_spans() if one.name == f"pylogtable.{name}"]


def attribute(span: ReadableSpan, name: str) -> object:
    assert span.attributes is not None
    return span.attributes.get(name)


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return (span.parent and span.parent.span_id) == parent.context.span_id


def test_append_and_its_commit_are_spans(store: Store, spans: Spans) -> None:
    topic = store.create_topic("orders")
    spans.clear()
    version = topic.append(kafka(["a", "b"])).version
    [append], [commit] = by_name(spans, "append"), by_name(spans, "commit")
    assert is_child(commit, append)
    assert attribute(append, "messaging.system") == "pylogtable"
    assert attribute(append, "messaging.destination.name") == "orders"
    assert attribute(append, "messaging.operation.type") == "send"
    assert attribute(append, "messaging.batch.message_count") == 2
    assert attribute(append, "pylogtable.version") == version
    assert attribute(commit, "pylogtable.version") == version
    assert attribute(commit, "pylogtable.operation") == "append"
    assert attribute(commit, "pylogtable.landed") is True


def test_producer_and_staged_appends_are_spans(store: Store, spans: Spans) -> None:
    topic = store.create_topic("orders")
    spans.clear()
    with topic.producer() as producer:
        for value in (b"1", b"2", b"3"):
            producer.send(key=b"a", value=value)
    plan = plan_append(topic)
    plan.commit([plan.stage(kafka(["b", "c"]))])
    consumer = topic.consumer("g")
    sink = store.create_topic("out").sink(consumer)
    consumer.poll()
    sink.append(kafka(["x"] * 4))
    counts = [attribute(one, "messaging.batch.message_count") for one in by_name(spans, "append")]
    assert counts == [3, 2, 4]


def test_each_attempt_is_a_span(store: Store, spans: Spans) -> None:
    topic, rival = store.create_topic("orders"), store.topic("orders")
    rival.append(kafka(["b"]))
    batches = iter([kafka(["a"])])
    spans.clear()

    def late() -> Iterator[object]:
        for batch in batches:
            rival.append(kafka(["c"]))
            yield from batch.to_batches()

    topic.append(late())
    landed = [attribute(one, "pylogtable.landed") for one in by_name(spans, "commit")]
    assert sorted(map(bool, landed)) == [False, True, True]


def test_read_is_a_span_of_its_caller(store: Store, spans: Spans) -> None:
    topic = store.create_topic("orders")
    topic.append(kafka(["a", "b"]))
    tracer = trace.get_tracer("test")
    spans.clear()
    with tracer.start_as_current_span("mine"):
        reader = topic.read()
    with tracer.start_as_current_span("other"):
        assert len(reader.read_all()) == 2
    [read] = by_name(spans, "read")
    [mine] = [one for one in spans.get_finished_spans() if one.name == "mine"]
    assert is_child(read, mine)
    assert attribute(read, "messaging.batch.message_count") == 2
    assert attribute(read, "messaging.operation.type") == "receive"


def test_latest_is_a_read(store: Store, spans: Spans) -> None:
    topic = store.create_topic("orders")
    version = topic.append(kafka(["a", "b", "a"])).version
    spans.clear()
    assert len(topic.latest()) == 2
    [read] = by_name(spans, "read")
    assert attribute(read, "messaging.destination.name") == "orders"
    assert attribute(read, "messaging.operation.type") == "receive"
    assert attribute(read, "messaging.batch.message_count") == 2
    assert attribute(read, "pylogtable.version") == version


def test_mirror_is_a_job_with_its_commits(store: Store, spans: Spans) -> None:
    topic = store.create_topic("orders")
    topic.append(kafka(["a"]))
    spans.clear()
    topic.mirror(make_store(), name="copy")
    [job] = by_name(spans, "job")
    assert attribute(job, "pylogtable.job") == "mirror"
    assert attribute(job, "messaging.destination.name") == "copy"
    commits = by_name(spans, "commit")
    assert commits
    assert all(is_child(commit, job) for commit in commits)
    with pytest.raises(InvalidRequestError):
        topic.mirror(store)
    assert by_name(spans, "job")[-1].status.status_code is trace.StatusCode.ERROR


def test_mirror_in_a_loop_is_a_job(store: Store, clock: Clock, spans: Spans) -> None:
    store.create_topic("orders").append(kafka(["a"]))
    spans.clear()
    driven(store, clock, jobs=["mirror"], mirror_to=make_store()).go(1_000)
    assert [attribute(one, "pylogtable.job") for one in by_name(spans, "job")] == ["mirror"]


def test_import_is_a_job_with_its_appends(store: Store, spans: Spans) -> None:
    with mock_cluster() as cluster:
        source = cluster.new_topic()
        cluster.produce(source, 0, [b"a", b"b"])
        import_topic(
            store, source, name="copy", bootstrap_servers=cluster.servers, copy_settings=False
        )
    [job], [append] = by_name(spans, "job"), by_name(spans, "append")
    assert attribute(job, "pylogtable.job") == "import"
    assert attribute(job, "messaging.destination.name") == "copy"
    assert is_child(append, job)
    assert attribute(append, "messaging.batch.message_count") == 2


@pytest.mark.records_in("files")
def test_job_is_a_span_with_its_commits(store: Store, spans: Spans) -> None:
    topic = store.create_topic("orders", config={"cleanup.policy": "compact"})
    for value in "123":
        topic.append(kafka(["a"], [value]))
    spans.clear()
    topic.maintain(vacuum=False)
    jobs = {attribute(one, "pylogtable.job"): one for one in by_name(spans, "job")}
    assert jobs.keys() == {"compaction", "merge"}
    commits = {attribute(one, "pylogtable.operation"): one for one in by_name(spans, "commit")}
    assert is_child(commits["compact"], jobs["compaction"])
    assert is_child(commits["merge"], jobs["merge"])


def test_work_in_threads_belongs_to_the_span_that_submits_it(store: Store, spans: Spans) -> None:
    topic = store.create_topic("orders")
    spans.clear()
    with trace.get_tracer("test").start_as_current_span("mine"), Threads(2) as pool:
        list(pool.map(topic.append, [kafka(["a"]), kafka(["b"])]))
    [mine] = [one for one in spans.get_finished_spans() if one.name == "mine"]
    appends = by_name(spans, "append")
    assert len(appends) == 2
    assert all(is_child(append, mine) for append in appends)


class _Broken(MemoryStore):
    def read(self, key: str) -> bytes | None:
        if key.endswith(".parquet") or "_manifest/00000000000000000001" in key:
            raise StorageError("the disk is broken")
        return super().read(key)


def test_errors_are_recorded(store: Store, spans: Spans) -> None:
    topic = store.create_topic("orders")
    with pytest.raises(InvalidRequestError):
        topic.append(kafka(["a"], partition=ints(7)))
    [append] = by_name(spans, "append")
    assert append.status.status_code is trace.StatusCode.ERROR
    assert [event.name for event in append.events] == ["exception"]


@pytest.mark.records_in("files")
def test_error_of_a_read_is_recorded(store: Store, spans: Spans) -> None:
    topic = store.create_topic("orders")
    topic.append(kafka(["a"]))
    path = topic.segments()["path"][0].as_py()
    reader = topic.read()
    topic._store.delete(path)
    with pytest.raises(StorageError):
        reader.read_all()
    [read] = by_name(spans, "read")
    assert read.status.status_code is trace.StatusCode.ERROR
    assert [event.name for event in read.events] == ["exception"]


def test_nothing_is_imported_and_the_interface_alone_does_nothing() -> None:
    code = (
        "import sys, pylogtable, pyarrow as pa;"
        "t = pylogtable.open('memory://x').create_topic('t');"
        "rows = pa.table({'value': pa.array([b'1'])});"
        "t.append(rows);"
        "assert not [n for n in sys.modules if n.startswith('opentelemetry')];"
        "import opentelemetry.trace as trace;"
        "t.append(rows);"
        "assert len(t.read().read_all()) == 2;"
        "from pylogtable.tracing import _tracer;"
        "assert _tracer() is None"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)
