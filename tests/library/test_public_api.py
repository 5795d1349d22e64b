"""The names that users rely on: that they exist, how they are called, that they are documented."""

from __future__ import annotations

import functools
import inspect
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import get_origin

import pytest

import pylogtable
import pylogtable.kafka
import pylogtable.metrics
from pylogtable import (
    BatchFuture,
    Consumer,
    Group,
    Producer,
    RecordFuture,
    Store,
    StoreConsumer,
    StoreGroup,
    Topic,
    View,
    engine,
)
from pylogtable.engine import AppendPlan, Scan, plan_append
from pylogtable.jobs.job import RegularJob
from pylogtable.store import Store as StoreClass
from tests.builders import kafka

SIGNATURES = {
    pylogtable.open: ["url", "*storage_options", "*clock"],
    pylogtable.open_topic: ["url", "*storage_options", "*clock"],
    pylogtable.report_html: ["store", "*now_ms"],
    pylogtable.is_kafka_shaped: ["schema", "*more_columns"],
    pylogtable.kafka.export_topic: [
        "topic",
        "*bootstrap_servers",
        "*kafka_topic",
        "*group",
        "*follow",
        "*producer_settings",
        "*batch_records",
        "*value_format",
        "*key_format",
        "*schema_registry",
        "*value_schema",
        "*key_schema",
        "*registry_settings",
        "*on_progress",
        "*stop",
    ],
    pylogtable.kafka.import_topic: [
        "store",
        "topic",
        "*bootstrap_servers",
        "*name",
        "*follow",
        "*from_timestamp",
        "*groups",
        "*allow_gaps",
        "*config",
        "*copy_settings",
        "*guard",
        "*consumer_settings",
        "*linger_ms",
        "*batch_bytes",
        "*value_format",
        "*key_format",
        "*schema_registry",
        "*value_schema",
        "*key_schema",
        "*registry_settings",
        "*keep_raw",
        "*on_error",
        "*on_progress",
        "*stop",
    ],
    pylogtable.kafka.redrive: [
        "store",
        "topic",
        "*schema_registry",
        "*value_schema",
        "*key_schema",
        "*registry_settings",
        "*value_format",
        "*key_format",
        "*dry_run",
        "*stop",
    ],
    pylogtable.kafka.import_topics: [
        "store",
        "topics",
        "*bootstrap_servers",
        "*pattern",
        "*all_topics",
        "*follow",
        "*consumer_settings",
        "*batch_bytes",
        "*on_progress",
        "*on_end",
        "*stop",
        "options",
    ],
    pylogtable.kafka.export_topics: [
        "store",
        "topics",
        "*bootstrap_servers",
        "*pattern",
        "*all_topics",
        "*follow",
        "*producer_settings",
        "*batch_records",
        "*on_progress",
        "*on_end",
        "*stop",
        "options",
    ],
    pylogtable.metrics.serve_metrics: [
        "store",
        "port",
        "*command",
        "*host",
        "*topics",
        "*per_partition",
    ],
    pylogtable.metrics.store_metrics: ["store", "*per_partition", "*openmetrics", "*on_error"],
    Store.topics: [],
    Store.exists: [],
    Store.topic: ["name"],
    Store.create_topic: [
        "name",
        "partitions",
        "schema",
        "key",
        "config",
        "*start_offsets",
        "*if_not_exists",
    ],
    Store.delete_topic: ["name"],
    Topic.at: ["version"],
    Topic.wait_for: ["version", "timeout"],
    Topic.append: ["data", "*txn", "*expected_last", "*note", "*keep_offsets"],
    Topic.read: ["partition", "start", "end", "columns", "version", "keys"],
    Topic.start_offsets: [],
    Topic.end_offsets: [],
    Topic.offsets_for_time: ["when", "version"],
    Topic.count: ["version"],
    Topic.latest: ["keys", "columns", "version"],
    Topic.describe: [],
    Topic.segments: ["version"],
    Topic.files: ["version"],
    Topic.history: ["limit"],
    Topic.verify: ["*data"],
    Topic.compare: ["other", "*data", "*version"],
    Topic.alter: [
        "partitions",
        "config",
        "add_columns",
        "widen_columns",
        "rename_columns",
        "drop_columns",
    ],
    Topic.delete_records: ["offsets"],
    Topic.compact: ["*force", "*threads", "*budget_bytes"],
    Topic.merge: ["*threads"],
    Topic.erase: ["keys", "where", "*dry_run", "*threads"],
    Topic.publish: ["formats", "*threads"],
    Topic.register_iceberg: ["catalog", "identifier"],
    Topic.unpublish: ["formats"],
    Topic.apply_retention: ["keep_from", "groups", "*dry_run"],
    Topic.vacuum: ["*dry_run", "*retention_ms", "*force"],
    Topic.maintain: ["*vacuum", "*threads", "*protect_groups", "*dry_run"],
    Topic.mirror: [
        "to_store",
        "*name",
        "*retention",
        "*config",
        "*groups",
        "*follow",
        "*allow_gaps",
        "*poll_seconds",
        "*on_progress",
        "*stop",
    ],
    Topic.promote: ["*force"],
    Store.maintain: ["topics", "*vacuum", "*jobs", "*threads", "*protect_groups", "*dry_run"],
    Topic.group: ["name"],
    Topic.groups: [],
    Topic.describe_groups: [],
    Topic.expire_groups: ["older_than", "*dry_run"],
    Store.group: ["name"],
    Store.groups: [],
    Group.positions: [],
    Group.commit: ["offsets", "metadata"],
    Group.lag: [],
    Group.describe: [],
    Group.reset: ["to", "*shift_by", "*partitions", "*dry_run"],
    Group.delete: [],
    Group.remove_member: ["name", "*dry_run"],
    Topic.find_commit: ["commit_id", "version"],
    Topic.version_at: ["when"],
    Topic.last_txn: ["app_id"],
    Topic.txn: ["app_id"],
    Topic.sink: ["consumer", "app_id"],
    Topic.producer: ["*linger_ms", "*batch_bytes", "*app_id"],
    Producer.send: [
        "given",
        "*key",
        "*value",
        "*headers",
        "*partition",
        "*timestamp",
        "*on_delivery",
        "columns",
    ],
    Producer.send_batch: ["data", "*on_delivery"],
    Producer.flush: [],
    Producer.close: [],
    RecordFuture.result: ["timeout"],
    RecordFuture.exception: ["timeout"],
    RecordFuture.done: [],
    BatchFuture.add_done_callback: ["fn"],
    Topic.consumer: [
        "group",
        "member",
        "*auto_offset_reset",
        "*columns",
        "*max_records",
        "*lease_ms",
        "*max_poll_interval_ms",
        "*follow",
        "*on_assign",
        "*on_revoke",
        "*on_lost",
    ],
    Consumer.poll: ["timeout", "*max_records"],
    Consumer.apoll: ["timeout", "*max_records"],
    Consumer.records: [],
    Consumer.commit: ["positions", "metadata"],
    Consumer.acommit: ["positions", "metadata"],
    Consumer.committed: [],
    Consumer.lag: [],
    Consumer.position: ["partition"],
    Consumer.seek: ["partition", "to"],
    Consumer.begin_at: ["positions"],
    Consumer.positions: [],
    Consumer.pause: ["partitions"],
    Consumer.resume: ["partitions"],
    Consumer.assignment: [],
    Consumer.close: ["*commit"],
    Store.consumer: [
        "group",
        "topics",
        "*pattern",
        "*member",
        "*auto_offset_reset",
        "*columns",
        "*max_records",
        "*lease_ms",
        "*max_poll_interval_ms",
        "*follow",
        "*on_assign",
        "*on_revoke",
        "*on_lost",
    ],
    StoreConsumer.topics: [],
    StoreConsumer.commit: ["positions", "metadata"],
    StoreConsumer.acommit: ["positions", "metadata"],
    StoreConsumer.committed: [],
    StoreConsumer.lag: [],
    StoreConsumer.position: ["topic", "partition"],
    StoreConsumer.positions: [],
    StoreConsumer.seek: ["topic", "partition", "to"],
    StoreConsumer.pause: ["topic", "partitions"],
    StoreConsumer.resume: ["topic", "partitions"],
    StoreConsumer.assignment: [],
    StoreConsumer.close: ["*commit"],
    StoreGroup.topics: [],
    StoreGroup.describe: [],
    StoreGroup.lag: [],
    StoreGroup.reset: ["to", "*shift_by", "*topics", "*dry_run"],
    StoreGroup.delete: [],
    StoreGroup.remove_member: ["name", "*dry_run"],
    View.describe: [],
    View.ranges: ["partition", "start", "end"],
    View.read: ["partition", "start", "end", "columns", "keys"],
    View.latest: ["keys", "columns", "partitions"],
    View.offsets_for_time: ["when", "partitions"],
    View.max_timestamp_offsets: ["partitions"],
    View.count: [],
    View.range_sizes: ["ranges", "*exact"],
    View.offset_after_records: ["partition", "start", "records", "end"],
    View.offset_after_bytes: ["partition", "start", "size_bytes", "end"],
    View.segments: [],
    View.files: [],
    View.partitions: [],
    View.history: ["limit"],
}
ENGINE_SIGNATURES = {
    engine.plan_append: ["topic", "*keep_offsets", "*refresh", "*app_id"],
    engine.AppendPlan.check_columns: ["schema"],
    engine.AppendPlan.merge_columns: ["schema"],
    engine.AppendPlan.plan_joins: ["staged"],
    engine.AppendPlan.joined: ["staged", "results"],
    engine.AppendPlan.stage: ["data", "task", "*temporary"],
    engine.AppendPlan.begin: ["task", "encoders"],
    engine.AppendPlan.commit: [
        "staged",
        "*txn",
        "*origin",
        "*expected_last",
        "*expected_ends",
        "*note",
        "*keep_files",
        "*summary",
    ],
    engine.AppendPlan.discard: ["staged"],
    engine.AppendPlan.find_txn: ["app_id", "version", "*origin", "*expected_last"],
    engine.Stager.add: ["batch"],
    engine.Stager.flush: [],
    engine.Stager.finish: [],
    engine.Staged: ["files", "staged_at_ms", "topic_id", "rows"],
    engine.Join: ["topic", "files", "first_offset"],
    engine.Joiner: ["store", "new_id"],
    engine.Joiner.__call__: ["join"],
    engine.check_log_columns: ["given", "*keep_offsets"],
    engine.groups_by_topic: ["store"],
    engine.Scan: ["view", "keys"],
    engine.Scan.tasks: ["ranges"],
    engine.Scan.parts: ["ranges", "*max_records", "*min_parts"],
    engine.Scan.reader: ["columns"],
    engine.Scan.key_groups: [],
    engine.PartReader.read: ["part"],
    engine.PartReader.gather: ["part", "max_bytes"],
    engine.by_commit: ["tasks"],
    engine.joined: ["parts"],
    engine.ReadPart: ["tasks"],
    engine.share_tasks: ["items", "limits"],
    engine.lag: ["topic", "positions"],
    engine.Lag: ["position", "end_offset", "records", "bytes", "seconds"],
    engine.LineFormatter: ["form"],
    engine.limits_of: ["opened"],
    engine.ReadTask: ["segment", "start", "end", "row_groups"],
    engine.in_threads: ["threads", "is_stopped"],
    engine.run_job: ["topic", "job", "run_units"],
    engine.maintain: [
        "topic",
        "run_units",
        "*vacuum",
        "*jobs",
        "*protect_groups",
        "*dry_run",
        "*report_errors",
    ],
    engine.mirror: ["topic", "to_store", "run_tasks", "options"],
    engine.parse_duration: ["text"],
    engine.parse_storage_options: ["text", "option"],
    engine.module_of_provider: ["options"],
    engine.portable_options: ["options"],
    engine.DoctorCheck: ["name", "status", "detail", "advice"],
    engine.left_probe: ["url", "storage_options", "runtime"],
    engine.diagnose_from_elsewhere: ["url", "folder", "*storage_options", "*clock"],
    engine.CopyTask: ["units", "taken", "at_hand"],
    engine.Copied: ["segments", "is_file"],
    engine.protected_groups: ["store", "groups", "topics"],
    engine.Position: ["kind", "value"],
    engine.locate: ["log", "positions"],
    engine.parse_position: ["given", "zone"],
    engine.parse_time: ["text", "zone"],
    engine.parse_when: ["text", "zone"],
    engine.as_datetime: ["when"],
    engine.Job.run: ["topic", "run_units"],
    engine.Compaction: ["force", "budget_bytes", "protect_groups"],
    engine.Erasure: ["keys", "where", "dry_run"],
    engine.Merge: ["is_regular", "again_and_again"],
    engine.Publication: ["formats"],
    engine.Retention: ["keep_from", "groups"],
    engine.Vacuum: ["dry_run", "retention_ms", "force"],
    engine.Worker.__call__: ["unit"],
    engine.Rewritten: [
        "partition",
        "swaps",
        "records_in",
        "records_out",
        "clean_end",
        "expired_below",
        "compacted",
        "erased",
    ],
}
SIGNATURES |= ENGINE_SIGNATURES
# A method of these is pinned above, or it is not public.
PINNED = (
    AppendPlan,
    Consumer,
    Group,
    Producer,
    Scan,
    Store,
    StoreConsumer,
    StoreGroup,
    Topic,
    View,
)


def public_classes() -> Iterator[type]:
    for module in (pylogtable, engine, pylogtable.kafka):
        for name in module.__all__:
            thing = getattr(module, name)
            # Python 3.10 takes an alias as Callable[…] for a class.
            if inspect.isclass(thing) and get_origin(thing) is None:
                yield thing


def own_members(of: type) -> dict[str, object]:
    """Public methods and properties that this library defines, inherited ones included."""
    classes = [base for base in of.__mro__ if base.__module__.startswith("pylogtable.")]
    return {
        name: thing
        for base in reversed(classes)
        for name, thing in vars(base).items()
        if not name.startswith("_") and (inspect.isfunction(thing) or _is_property(thing))
    }


def is_documented(of: type, name: str) -> bool:
    """By itself, by a class it inherits from, or by a protocol of maintenance jobs."""
    places = (*of.__mro__, engine.Job, RegularJob)
    return any(getattr(vars(place).get(name), "__doc__", None) for place in places)


def _is_property(thing: object) -> bool:
    return isinstance(thing, property | functools.cached_property)


def test_every_public_name_can_be_imported_and_is_listed() -> None:
    for name in pylogtable.__all__:
        assert getattr(pylogtable, name) is not None
        assert name in dir(pylogtable)
    assert len(pylogtable.__all__) == len(set(pylogtable.__all__))
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        pylogtable.opne  # noqa: B018


def test_nothing_else_is_public() -> None:
    public = {
        name
        for name, thing in vars(pylogtable).items()
        if not name.startswith("_") and not inspect.ismodule(thing)
    }
    assert public - set(pylogtable.__all__) <= {"TYPE_CHECKING", "annotations"}


def test_every_name_for_engines_is_pinned() -> None:
    pinned = {call.__qualname__.split(".")[0] for call in ENGINE_SIGNATURES}
    types = {"ExpectedLast", "PositionLog", "RunTasks", "RunUnits"}
    values = {"EARLIEST", "LATEST", "MAINTENANCE_JOBS", "NOT_GIVEN"}
    assert set(engine.__all__) == pinned | types | values


def test_jobs_that_only_engines_need_are_not_methods_of_users() -> None:
    assert not hasattr(Topic, "try_maintain")
    assert not hasattr(Store, "protected")


@pytest.mark.parametrize("call", SIGNATURES, ids=lambda call: call.__qualname__)
def test_public_methods_have_the_pinned_signature(call: object) -> None:
    parameters = inspect.signature(call).parameters.values()  # type: ignore[arg-type]
    names = [
        f"*{p.name}" if p.kind is inspect.Parameter.KEYWORD_ONLY else p.name
        for p in parameters
        if p.name != "self"
    ]
    assert names == SIGNATURES[call]


@pytest.mark.parametrize("of", PINNED, ids=lambda of: of.__name__)
def test_every_public_method_has_a_pinned_signature(of: type) -> None:
    methods = {thing for thing in own_members(of).values() if inspect.isfunction(thing)}
    assert sorted(m.__qualname__ for m in methods - SIGNATURES.keys()) == []


@pytest.mark.parametrize("of", sorted(set(public_classes()), key=str), ids=lambda of: of.__name__)
def test_public_classes_and_their_methods_have_docstrings(of: type) -> None:
    # A dataclass or named tuple without a docstring gets its signature as one.
    assert of.__doc__
    assert not of.__doc__.startswith(f"{of.__name__}(")
    assert [name for name in own_members(of) if not is_documented(of, name)] == []


def test_public_functions_have_docstrings() -> None:
    for module in (pylogtable, engine, pylogtable.kafka):
        for name in module.__all__:
            thing = getattr(module, name)
            assert not inspect.isfunction(thing) or thing.__doc__, name


def test_results_and_staged_files_can_be_pickled(store: StoreClass) -> None:
    topic = store.create_topic("t")
    result = topic.append(kafka(["a"]))
    staged = plan_append(topic).stage(kafka(["b"]))
    for thing in (result, staged, topic.describe(), topic.verify(), topic.compare(topic)):
        assert pickle.loads(pickle.dumps(thing)) == thing


def test_import_loads_neither_spark_nor_cloud_clients() -> None:
    code = (
        "import sys, pylogtable;"
        "heavy = {'pyspark', 's3fs', 'boto3', 'botocore', 'aiohttp', 'pandas'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)
