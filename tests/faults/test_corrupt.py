"""Damaged objects are refused with their names, and never followed; damaged hints are ignored."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pylogtable
import pylogtable.log.root_plan
from pylogtable.errors import (
    CorruptTopicError,
    LogTableError,
    StorageError,
    TopicNotFoundError,
    UnsupportedFormatError,
)
from pylogtable.format.paths import HINT_PATH, commit_path, leaf_path, root_path
from pylogtable.limits import Limits
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.topic import Topic
from tests.builders import IN_FILES, replace_file
from tests.faults.support import (
    NAME,
    check,
    copy_of,
    data_files,
    new_topic,
    numbers_of,
    open_topic,
    rows,
)
from tests.tamper import edited

ROOT = root_path(64)
NUMBERS = [*range(4), 50, 51, 60, 61]


@pytest.fixture(scope="module")
def _sound() -> MemoryStore:
    """A topic with a root at 64 that has a leaf, a commit after it, and a tail in its root."""
    store = MemoryStore()
    topic = new_topic(store.with_limits(Limits(tail_max=3)))
    topic.append(rows(range(4)))
    topic.append(rows([50, 51]))
    for number in range(62):
        topic.append(rows([]), txn=("filler", number))
    topic.append(rows([60, 61]))
    assert topic.version == 65
    check(store, NUMBERS)
    return store


@pytest.fixture
def inner(_sound: MemoryStore) -> MemoryStore:
    return copy_of(_sound)


@pytest.fixture
def plain() -> MemoryStore:
    """A topic of two commits, without a root."""
    store = MemoryStore()
    new_topic(store).append(rows(range(4)))
    return store


def objects(store: ObjectStore) -> ObjectStore:
    return store.below(NAME)


def get(store: ObjectStore, path: str) -> bytes:
    data = objects(store).read(path)
    assert data is not None
    return data


def leaf_of(store: ObjectStore) -> str:
    (path,) = [e.key for e in objects(store).list("_manifest/") if "leaf-" in e.key]
    return path


def edit(store: ObjectStore, path: str, change: Callable[[dict[str, Any]], object]) -> None:
    objects(store).write(path, edited(get(store, path), change))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "binary": lambda data: bytes(range(256)) * 4,
    "other_json": lambda data: b'["not", "an", "object"]',
    "wrong_types": lambda data: b'{"version": "one", "root_version": "x"}',
}
damages = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())


class TestCommits:
    @damages
    @pytest.mark.parametrize("version", [0, 1])
    def test_damaged_commit_is_an_error_that_names_it(
        self, plain: MemoryStore, version: int, damage: Callable[[bytes], bytes]
    ) -> None:
        path = commit_path(version)
        objects(plain).write(path, damage(get(plain, path)))
        with pytest.raises(CorruptTopicError) as caught:
            open_topic(plain)
        assert caught.value.path == path
        assert caught.value.rule == "COMMIT-1"
        assert path in str(caught.value)

    def test_damaged_commit_stops_an_open_writer_without_data_loss(
        self, plain: MemoryStore
    ) -> None:
        topic = open_topic(plain)
        before = data_files(plain)
        objects(plain).write(commit_path(2), b"{")
        with pytest.raises(CorruptTopicError, match=commit_path(2)):
            topic.append(rows([9]))
        assert data_files(plain) == before

    def test_commit_stored_under_another_version_is_refused(self, plain: MemoryStore) -> None:
        objects(plain).write(commit_path(2), get(plain, commit_path(1)))
        with pytest.raises(CorruptTopicError, match="the body says version 1") as caught:
            open_topic(plain)
        assert caught.value.path == commit_path(2)

    @pytest.mark.parametrize(
        ("change", "rule"),
        [
            (lambda body: body.update(committed_at_ms=0), "COMMIT-6"),
            (lambda body: body["ends"].update({"0": 99}), "LOG-2"),
            (lambda body: body["add"][0].update(base_offset=1), "SEG-10"),
            (lambda body: body["add"][0].update(records=1), "LOG-2"),
            (lambda body: body["add"][0].update(shift=-1), "SEG-10"),
            (lambda body: body["add"][0].update(shift=1), "SEG-10"),
            (lambda body: body["add"][0].update(row_groups=[]), "SEG-10"),
            (lambda body: body["add"][0].update(row_groups=[1]), "SEG-10"),
            (lambda body: body["ends"].update({"7": 0}), "META-3"),
            (lambda body: body.update(add=body["add"][1:]), "LOG-2"),
            (lambda body: body.update(commit_id="x", checksum="00000000"), "SUM-1"),
            (lambda body: body.update(operation="create"), "META-2"),
        ],
        ids=[
            *("time", "end", "base", "records", "negative shift", "wrong shift"),
            *("no row group", "late row group", "unknown end", "end alone", "checksum", "create"),
        ],
    )
    def test_commit_that_does_not_follow_the_one_before_is_refused(
        self, plain: MemoryStore, change: Callable[[dict[str, Any]], object], rule: str
    ) -> None:
        edit(plain, commit_path(1), change)
        with pytest.raises(CorruptTopicError) as caught:
            open_topic(plain)
        assert (caught.value.path, caught.value.rule) == (commit_path(1), rule)

    def test_verify_finds_missing_commits(self, plain: MemoryStore) -> None:
        """A reader notices if one is missing, but not if several are."""
        topic = open_topic(plain)
        for value in (4, 5, 6):
            topic.append(rows([value]))
        objects(plain).delete(commit_path(2))
        objects(plain).delete(commit_path(3))
        report = open_topic(plain).verify()
        assert [(p.rule, p.path) for p in report.problems] == [("COMMIT-3", commit_path(2))]


class TestTheIndex:
    @damages
    @pytest.mark.parametrize("path", [HINT_PATH, ROOT], ids=["hint", "root"])
    def test_damaged_hint_or_root_is_ignored_and_replaced(
        self, inner: MemoryStore, path: str, damage: Callable[[bytes], bytes]
    ) -> None:
        objects(inner).write(path, damage(get(inner, path)))
        ignored = [ROOT] if path == ROOT else []
        topic = check(inner, NUMBERS, ignored)
        assert topic.version == 65
        for number in range(80):
            topic.append(rows([]), txn=("more", number))
        check(inner, NUMBERS, ignored)
        hint = json.loads(get(inner, HINT_PATH))
        assert hint["root_version"] > 64
        json.loads(get(inner, root_path(hint["root_version"])))

    @pytest.mark.parametrize("path", [HINT_PATH, ROOT], ids=["hint", "root"])
    def test_missing_hint_or_root_loses_nothing(self, inner: MemoryStore, path: str) -> None:
        objects(inner).delete(path)
        assert check(inner, NUMBERS).version == 65

    @pytest.mark.parametrize("named", [63, 66, 10**19])
    def test_hint_to_a_missing_root_is_ignored(self, inner: MemoryStore, named: int) -> None:
        objects(inner).write(HINT_PATH, json.dumps({"root_version": named}).encode())
        assert check(inner, NUMBERS).version == 65

    @pytest.mark.parametrize("named", [-1, -64])
    def test_hint_to_a_negative_version_is_ignored(self, inner: MemoryStore, named: int) -> None:
        objects(inner).write(HINT_PATH, json.dumps({"root_version": named}).encode())
        assert check(inner, NUMBERS).version == 65

    def test_hint_that_says_there_is_no_root_is_ignored(self, inner: MemoryStore) -> None:
        objects(inner).write(HINT_PATH, b'{"root_version":null}')
        assert check(inner, NUMBERS).version == 65

    def test_root_of_another_version_is_ignored(self, inner: MemoryStore) -> None:
        edit(inner, ROOT, lambda body: body.update(version=63))
        assert check(inner, NUMBERS, [ROOT]).version == 65

    @damages
    def test_damaged_leaf_is_an_error_that_names_it(
        self, inner: MemoryStore, damage: Callable[[bytes], bytes]
    ) -> None:
        path = leaf_of(inner)
        objects(inner).write(path, damage(get(inner, path)))
        topic = open_topic(inner)
        with pytest.raises(CorruptTopicError) as caught:
            numbers_of(topic)
        assert caught.value.path == path
        assert [(p.rule, p.path) for p in topic.verify().problems] == [("SUM-2", path)]

    def test_missing_leaf_is_an_error_that_names_it(self, inner: MemoryStore) -> None:
        path = leaf_of(inner)
        objects(inner).delete(path)
        with pytest.raises(CorruptTopicError, match="missing") as caught:
            numbers_of(open_topic(inner))
        assert caught.value.path == path

    def test_listing_that_contradicts_the_totals_of_the_root_is_an_error(
        self, inner: MemoryStore
    ) -> None:
        leaf = leaf_of(inner)
        table = pq.read_table(pa.BufferReader(get(inner, leaf)))
        at = table.schema.get_field_index("size_bytes")
        sizes = [1, *table["size_bytes"].to_pylist()[1:]]
        sink = pa.BufferOutputStream()
        pq.write_table(table.set_column(at, table.schema.field(at), [sizes]), sink)
        objects(inner).write(leaf, sink.getvalue().to_pybytes())
        edit(inner, ROOT, lambda body: body.pop("leaf_checksums"))
        with pytest.raises(CorruptTopicError) as caught:
            open_topic(inner).segments()
        assert (caught.value.path, caught.value.rule) == (ROOT, "ROOT-5")

    def test_appends_work_beside_a_damaged_leaf(self, inner: MemoryStore) -> None:
        """An append does not read the leaf; a root that needs it is not written."""
        objects(inner).write(leaf_of(inner), b"PAR1")
        topic = open_topic(inner)
        for number in range(80):
            topic.append(rows([]), txn=("more", number))
        assert open_topic(inner).version == 145

    def test_root_that_names_a_leaf_outside_the_topic_is_ignored(self, inner: MemoryStore) -> None:
        edit(inner, ROOT, lambda body: body["leaves"][0].__setitem__(0, "../../other"))
        assert check(inner, NUMBERS, [ROOT]).version == 65


class TestSegments:
    def test_missing_segment_is_an_error_that_names_it(self, plain: MemoryStore) -> None:
        path = min(data_files(plain))
        objects(plain).delete(path)
        topic = open_topic(plain)
        with pytest.raises(LogTableError) as caught:
            numbers_of(topic)
        assert path in str(caught.value)
        assert [(p.rule, p.path) for p in topic.verify().problems] == [("SEG-1", path)]

    @pytest.mark.parametrize("records", [1, 3])
    def test_segment_with_another_row_count_is_an_error(
        self, plain: MemoryStore, records: int
    ) -> None:
        path = min(data_files(plain))
        table = pq.read_table(pa.BufferReader(get(plain, path)))
        other = pa.concat_tables([table, table]).slice(0, records)
        sink = pa.BufferOutputStream()
        pq.write_table(other, sink, store_schema=False)
        topic = replace_file(plain, NAME, path, sink.getvalue().to_pybytes())
        with pytest.raises(CorruptTopicError) as caught:
            numbers_of(topic)
        assert (caught.value.path, caught.value.rule) == (path, "SEG-5")
        assert not topic.verify(data=True)

    @damages
    def test_damaged_segment_is_an_error_that_names_it(
        self, plain: MemoryStore, damage: Callable[[bytes], bytes]
    ) -> None:
        path = min(data_files(plain))
        objects(plain).write(path, damage(get(plain, path)))
        topic = open_topic(plain)
        with pytest.raises(CorruptTopicError) as caught:
            numbers_of(topic)
        assert caught.value.path == path
        problems = topic.verify(data=True).problems
        assert [problem.path for problem in problems] == [path]


class TestProtocol:
    def _protocol(self, store: ObjectStore, **features: list[str]) -> None:
        edit(store, commit_path(0), lambda body: body["protocol"].update(features))

    def test_topic_with_an_unknown_reader_feature_cannot_be_opened(
        self, plain: MemoryStore
    ) -> None:
        self._protocol(plain, reader_features=["deletion_vectors"])
        with pytest.raises(UnsupportedFormatError, match="deletion_vectors"):
            open_topic(plain)

    def test_unknown_reader_feature_in_a_root_is_refused(self, inner: MemoryStore) -> None:
        edit(inner, ROOT, lambda b: b["protocol"].update(reader_features=["deletion_vectors"]))
        with pytest.raises(UnsupportedFormatError, match="deletion_vectors"):
            open_topic(inner)

    def test_topic_with_an_unknown_writer_feature_is_read_only(self, plain: MemoryStore) -> None:
        self._protocol(plain, writer_features=["idempotent_producers"])
        topic = check(plain, range(4))
        before = data_files(plain)
        for write in (
            lambda: topic.append(rows([9])),
            lambda: topic.alter(partitions=3),
            lambda: topic.delete_records({0: 1}),
        ):
            with pytest.raises(UnsupportedFormatError, match="idempotent_producers"):
                write()
        assert data_files(plain) == before
        assert check(plain, range(4)).version == 1

    def test_newer_format_is_refused(self, plain: MemoryStore) -> None:
        edit(plain, commit_path(0), lambda body: body["protocol"].update(format=2))
        with pytest.raises(UnsupportedFormatError, match="format version 2"):
            open_topic(plain)

    def test_newer_format_that_does_not_decode_is_refused(self, plain: MemoryStore) -> None:
        objects(plain).write(commit_path(0), b'{"protocol": {"format": 2}, "what": "else"}')
        with pytest.raises(UnsupportedFormatError, match="format version 2"):
            open_topic(plain)


class TestNoTopic:
    def test_missing_topic_says_how_to_create_it(self) -> None:
        with pytest.raises(TopicNotFoundError, match="create_topic"):
            open_topic(MemoryStore())

    def test_directory_of_another_format_is_not_a_topic(self, tmp_path: Path) -> None:
        other = tmp_path / "data" / "_delta_log"
        other.mkdir(parents=True)
        (other / "00000000000000000000.json").write_text("{}")
        (tmp_path / "data" / "part-0.parquet").write_bytes(b"PAR1")
        store = pylogtable.open(tmp_path)
        with pytest.raises(TopicNotFoundError, match="there is no topic at"):
            store.topic("data")
        assert store.topics() == []

    def test_file_is_not_a_topic(self, tmp_path: Path) -> None:
        (tmp_path / "data").write_text("hello")
        store = pylogtable.open(tmp_path)
        with pytest.raises(TopicNotFoundError, match="there is no topic at"):
            store.topic("data")
        with pytest.raises(StorageError):
            store.create_topic("data")
        assert (tmp_path / "data").read_text() == "hello"


EVIL = [
    "../other/partition=0/00000000000000000000-aa.parquet",
    "partition=0/../../00000000000000000000-aa.parquet",
    "partition=0/../partition=0/00000000000000000000-aa.parquet",
    "/etc/passwd",
    "/partition=0/00000000000000000000-aa.parquet",
    "s3://other-bucket/partition=0/00000000000000000000-aa.parquet",
    "file:///etc/passwd",
    "partition=1/00000000000000000000-aa.parquet",
    "partition=00/00000000000000000000-aa.parquet",
    "_manifest/00000000000000000000.json",
    "partition=0/00000000000000000000-aa.parquet\n",
    "partition=0/00000000000000000000-..%2f..parquet",
    "partition=0\\00000000000000000000-aa.parquet",
    "",
]


@pytest.mark.parametrize("path", EVIL)
class TestPathsOutsideTheTopic:
    """A manifest is data from outside: its paths are checked before anything is read there."""

    def test_path_in_a_commit_is_refused(self, plain: MemoryStore, path: str) -> None:
        edit(plain, commit_path(1), lambda body: body["add"][0].update(path=path))
        with pytest.raises(CorruptTopicError) as caught:
            open_topic(plain)
        assert (caught.value.path, caught.value.rule) == (commit_path(1), "PATH-4")

    def test_root_with_such_a_path_is_ignored(
        self, plain: MemoryStore, path: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        topic = open_topic(plain)
        topic._log.manifest.write_root(topic._log.latest(), lambda: "aa")
        edit(plain, root_path(1), lambda b: b["partitions"][0]["tail"][0].update(path=path))
        check(plain, range(4), [root_path(1)])
        assert "PATH-4" in caplog.text
        assert root_path(1) in caplog.text

    def test_path_in_a_leaf_is_refused(self, inner: MemoryStore, path: str) -> None:
        leaf = leaf_of(inner)
        table = pq.read_table(pa.BufferReader(get(inner, leaf)))
        at = table.schema.get_field_index("path")
        paths = [path, *table["path"].to_pylist()[1:]]
        sink = pa.BufferOutputStream()
        pq.write_table(table.set_column(at, table.schema.field(at), [paths]), sink)
        objects(inner).write(leaf, sink.getvalue().to_pybytes())
        edit(inner, ROOT, lambda body: body.pop("leaf_checksums"))
        topic = open_topic(inner)
        for use in (numbers_of, Topic.segments):
            with pytest.raises(CorruptTopicError) as caught:
                use(topic)
            assert (caught.value.path, caught.value.rule) == (leaf, "PATH-4")
        assert leaf == leaf_path(leaf.removeprefix("_manifest/leaf-").removesuffix(".parquet"))
        assert not topic.verify(data=True)


SECRET = "wJalrXUtnFEMI+K7MDENG+bPxRfiCYzEXAMPLEKEY"
KEY = "AKIAIOSFODNN7EXAMPLE"
TOKEN = "FwoGZXIvYXdzEBYaDHqa0AP-token"


class TestSecrets:
    def _options(self) -> dict[str, Any]:
        return {
            "key": KEY,
            "secret": SECRET,
            "token": TOKEN,
            "endpoint_url": "http://127.0.0.1:9",  # discard: nobody listens
            "timeout_seconds": 1,
            "config_kwargs": {"retries": {"max_attempts": 1}, "connect_timeout": 1},
        }

    @pytest.mark.parametrize(
        "act",
        [
            lambda store: store.topics(),
            lambda store: store.topic("t"),
            lambda store: store.create_topic("t"),
        ],
        ids=["topics", "open", "create"],
    )
    def test_secrets_are_not_in_errors_and_logs(
        self, act: Callable[[pylogtable.Store], object], caplog: pytest.LogCaptureFixture
    ) -> None:
        pytest.importorskip("s3fs")
        caplog.set_level(logging.DEBUG, logger="pylogtable")
        store = pylogtable.open("s3://bucket/prefix", storage_options=self._options())
        with pytest.raises(StorageError) as caught:
            act(store)
        seen = [
            str(caught.value),
            repr(caught.value),
            repr(store),
            store.url,
            "".join(traceback.format_exception(caught.value)),
            caplog.text,
        ]
        assert "s3://bucket" in seen[0]
        for text in seen:
            assert SECRET not in text
            assert KEY not in text
            assert TOKEN not in text

    def test_secrets_are_not_in_the_manifest(self, tmp_path: Path) -> None:
        options = {"secret": SECRET, "key": KEY}
        store = pylogtable.open(tmp_path, storage_options=options)
        topic = store.create_topic("t", config=IN_FILES)
        topic.append(pa.table({"value": pa.array([b"x"])}))
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert len(files) == 4
        for path in files:
            assert SECRET.encode() not in path.read_bytes()
            assert KEY.encode() not in path.read_bytes()

    @pytest.mark.parametrize(
        "url", [f"s3://{KEY}:{SECRET}@bucket/x", f"https://user:{SECRET}@host/x"]
    )
    def test_secrets_in_a_url_are_not_repeated(self, url: str) -> None:
        with pytest.raises(LogTableError) as caught:
            pylogtable.open(url)
        assert SECRET not in "".join(traceback.format_exception(caught.value))
