"""Golden topics that are damaged: each must fail with the named error, or read all the same."""

from __future__ import annotations

import base64
import json
import shutil
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from golden_place import Place, Row, at, change_object, commit_name, kafka, placed, record, small
from indexed_topics import append_one_by_one, make_indexed, rooted, write_root


def fails(
    place: Place, what: str, rules: list[str], when: str, error: str, rule: str | None = None
) -> None:
    body = {"class": error} if rule is None else {"class": error, "rule": rule}
    place.case(what, rules, when=when, error=body)


def corrupt_truncated_commit(place: Place) -> None:
    small(place)
    path = place.manifest(commit_name(2))
    path.write_bytes(path.read_bytes()[:-40])
    fails(place, "The newest commit is cut short", ["COMMIT-1"], "open", "CorruptTopicError",
           "COMMIT-1")  # fmt: skip


def corrupt_gap_in_commits(place: Place) -> None:
    small(place)
    place.manifest(commit_name(1)).unlink()
    fails(place, "Commit 1 is gone and commit 2 is there", ["COMMIT-3", "COMMIT-7"], "verify",
           "CorruptTopicError", "COMMIT-3")  # fmt: skip


def corrupt_version_in_body(place: Place) -> None:
    small(place)
    change_object(place.manifest(commit_name(2)), lambda body: body.update(version=3))
    fails(place, "The commit named 2 says that it is 3", ["COMMIT-2"], "open",
           "CorruptTopicError", "COMMIT-2")  # fmt: skip


def corrupt_reader_feature(place: Place) -> None:
    small(place)
    protocol = {"format": 1, "reader_features": ["deletion-vectors"]}
    change_object(place.manifest(commit_name(2)), lambda body: body.update(protocol=protocol))
    fails(place, "A commit asks of readers what none knows", ["PROTO-2"], "open",
           "UnsupportedFormatError")  # fmt: skip


def corrupt_writer_feature(place: Place) -> None:
    rows = small(place)
    protocol = {"format": 1, "writer_features": ["sorted-segments"]}
    change_object(place.manifest(commit_name(2)), lambda body: body.update(protocol=protocol))
    place.expect(versions={"2": at({0: 0}, {0: 4}, rows)})
    fails(place, "A commit asks of writers what none knows: it can be read, not appended to",
           ["PROTO-3"], "append", "UnsupportedFormatError")  # fmt: skip


def corrupt_escaping_path(place: Place) -> None:
    small(place)

    def escape(body: dict[str, Any]) -> None:
        body["add"][0]["path"] = "partition=0/../../../secret-0.parquet"

    change_object(place.manifest(commit_name(2)), escape)
    fails(place, "A segment's path leads out of the topic", ["PATH-4"], "open",
           "CorruptTopicError", "PATH-4")  # fmt: skip


def corrupt_row_count(place: Place) -> None:
    small(place)

    def claim_more(body: dict[str, Any]) -> None:
        body["ends"]["0"] += 1
        body["add"][0]["end_offset"] += 1
        body["add"][0]["records"] += 1

    change_object(place.manifest(commit_name(2)), claim_more)
    fails(place, "The manifest counts one record more than the file has", ["SEG-5"], "read",
           "CorruptTopicError", "SEG-5")  # fmt: skip


def corrupt_segment_truncated(place: Place) -> None:
    small(place)
    for path in (place.topic_folder / "partition=0").glob("*2-*.parquet"):
        path.write_bytes(path.read_bytes()[:-8])
    fails(place, "A segment file lacks its last bytes", ["SEG-2"], "read", "CorruptTopicError",
           "SEG-2")  # fmt: skip


def corrupt_segment_copied(place: Place) -> None:
    small(place)
    first, second = sorted((place.topic_folder / "partition=0").glob("*.parquet"))
    shutil.copy(first, second)

    def fit(body: dict[str, Any]) -> None:
        body["add"][0]["size_bytes"] = first.stat().st_size
        body["add"][0].pop("footer_checksum", None)

    change_object(place.manifest(commit_name(2)), fit)
    fails(place, "A segment file has the bytes of another one with as many records",
           ["SEG-11"], "read", "CorruptTopicError", "SEG-11")  # fmt: skip


def corrupt_field_id(place: Place) -> None:
    small(place)
    change_object(place.manifest(commit_name(0)), _swap_columns)
    fails(place, "The columns of a file have other ids than those of the topic", ["META-6"],
           "read", "CorruptTopicError", "META-6")  # fmt: skip


def _swap_columns(body: dict[str, Any]) -> None:
    """Two columns of one type change places, and so their ids."""
    key, value, *others = body["topic"]["fields"]
    body["topic"]["fields"] = [{**value, "id": key["id"]}, {**key, "id": value["id"]}, *others]


def corrupt_footer(place: Place) -> None:
    small(place)
    for path in (place.topic_folder / "partition=0").glob("*2-*.parquet"):
        data = path.read_bytes()
        at_name = data.rindex(b"parquet-cpp")
        path.write_bytes(data[:at_name] + b"Parquet-cpp" + data[at_name + 11 :])
    fails(place, "A footer was changed in a place that means nothing: it can be parsed, and its "
           "checksum is wrong", ["SUM-3"], "read", "CorruptTopicError", "SUM-3")  # fmt: skip


def corrupt_segment_missing(place: Place) -> None:
    small(place)
    for path in (place.topic_folder / "partition=0").glob("*2-*.parquet"):
        path.unlink()
    fails(place, "A live segment has no file", ["SEG-1"], "verify", "CorruptTopicError", "SEG-1")


def corrupt_overlap(place: Place) -> None:
    small(place)
    change_object(place.manifest(commit_name(2)), lambda body: body["add"][0].update(base_offset=1))
    fails(place, "An append begins below the end of its partition", ["LOG-2"], "open",
           "CorruptTopicError", "LOG-2")  # fmt: skip


def corrupt_leaf_truncated(place: Place) -> None:
    make_indexed(place, appends=4, rows_each=68)
    shutil.rmtree(place.topic_folder / "partition=0")
    for version in range(64):
        place.manifest(commit_name(version)).unlink()
    for path in (place.topic_folder / "_manifest").glob("leaf-*"):
        path.write_bytes(path.read_bytes()[:2000])
    fails(place, "A leaf that the root names is cut short (manifest only: no data files)",
           ["LEAF-1"], "read", "CorruptTopicError", "LEAF-1")  # fmt: skip


def _indexed_small(place: Place) -> list[Row]:
    rows, _ = make_indexed(place, appends=2, rows_each=1)
    return placed(0, 0, rows)[1:]


def corrupt_root(place: Place) -> None:
    rows = _indexed_small(place)
    path = place.manifest(f"{64:020d}.root.json")
    path.write_bytes(path.read_bytes()[:-50])
    place.expect(versions={"66": at({0: 1}, {0: 6}, rows)})
    what = "The root is cut short: readers pass over it and replay"
    place.case(what, ["ROOT-2"])


def corrupt_root_not_tiled(place: Place) -> None:
    rows = rooted(place)

    def lose(root: dict[str, Any]) -> None:
        del root["partitions"][0]["tail"][0]

    change_object(place.manifest(f"{2:020d}.root.json"), lose)
    place.expect(versions={"3": at({0: 0}, {0: 5}, rows)})
    what = "The root lacks a segment: readers pass over it and replay"
    place.case(what, ["ROOT-6"], problems=["ROOT-6"])


def corrupt_root_end(place: Place) -> None:
    rows = rooted(place)

    def lengthen(root: dict[str, Any]) -> None:
        # It agrees with itself, but not with the commits after it.
        root["partitions"][0].update(log_start=9, end=9, live={}, tail=[])

    change_object(place.manifest(f"{2:020d}.root.json"), lengthen)
    place.expect(versions={"3": at({0: 0}, {0: 5}, rows)})
    what = "The root has another end than the commits after it: readers begin with an older one"
    place.case(what, ["ROOT-5", "ROOT-6"], problems=["ROOT-5"])


def corrupt_ends_alone(place: Place) -> None:
    small(place)
    change_object(place.manifest(commit_name(2)), lambda body: body.pop("add"))
    fails(place, "A commit moves an end without a segment", ["LOG-2"], "open",
           "CorruptTopicError", "LOG-2")  # fmt: skip


def corrupt_no_row_groups(place: Place) -> None:
    small(place)
    change_object(place.manifest(commit_name(2)), lambda body: body["add"][0].update(row_groups=[]))
    fails(place, "A segment has records and no row groups", ["SEG-10"], "open",
           "CorruptTopicError", "SEG-10")  # fmt: skip


def corrupt_checksum(place: Place) -> None:
    small(place)
    path = place.manifest(commit_name(2))
    path.write_bytes(path.read_bytes().replace(b'"records":2', b'"records":1'))
    fails(place, "A digit of a commit has changed since its checksum was taken", ["SUM-1"], "open",
           "CorruptTopicError", "SUM-1")  # fmt: skip


def with_leaf(place: Place, lose_entry: bool, edit: Callable[[dict[str, Any]], None]) -> None:
    """A topic whose first segments are known from a leaf alone, since their commits are gone."""
    topic = place.store.create_topic("topic")
    place.tick()
    append_one_by_one(topic, [{**record(n, b"k", b"v"), "partition": 0} for n in range(6)])
    write_root(place, "leaf")
    for version in range(2):
        place.manifest(commit_name(version)).unlink()
    if lose_entry:
        path = place.manifest("leaf-leaf.parquet")
        table = pq.read_table(path)
        pq.write_table(pa.concat_tables([table.slice(0, 2), table.slice(3)]), path)
    change_object(place.manifest(f"{1:020d}.root.json"), edit)


def corrupt_leaf_checksum(place: Place) -> None:
    with_leaf(place, True, lambda root: None)
    fails(place, "A leaf has changed since the root was written", ["SUM-2"], "read",
           "CorruptTopicError", "SUM-2")  # fmt: skip


def corrupt_leaf_entries(place: Place) -> None:
    def edit(root: dict[str, Any]) -> None:
        del root["leaf_checksums"]

    with_leaf(place, True, edit)
    fails(place, "A leaf has fewer entries than its root says", ["LEAF-3"], "read",
           "CorruptTopicError", "LEAF-3")  # fmt: skip


def corrupt_run_gap(place: Place) -> None:
    def edit(root: dict[str, Any]) -> None:
        del root["leaf_checksums"]
        root["leaves"][0][1] = 5
        root["partitions"][0]["live"]["segments"] = 5

    with_leaf(place, True, edit)
    fails(place, "The entries of a run have a gap", ["LEAF-3"], "read",
           "CorruptTopicError", "LEAF-3")  # fmt: skip


def corrupt_run_time(place: Place) -> None:
    with_leaf(place, False, lambda root: root["partitions"][0]["runs"][0].__setitem__(3, 1))
    fails(place, "A run has records later than its greatest time", ["LEAF-3"], "read",
           "CorruptTopicError", "LEAF-3")  # fmt: skip


def corrupt_hint(place: Place) -> None:
    rows = small(place)
    place.manifest("_head.json").write_bytes(b"{\x00 not a hint")
    place.expect(versions={"2": at({0: 0}, {0: 4}, rows)})
    place.case("The hint is garbage: readers look for themselves", ["HINT-1"])


def corrupt_hint_to_nowhere(place: Place) -> None:
    rows = small(place)
    place.manifest("_head.json").write_bytes(b'{"root_version":128}')
    place.expect(versions={"2": at({0: 0}, {0: 4}, rows)})
    place.case("The hint names a root that is not there", ["HINT-1"])


def corrupt_group_number(place: Place) -> None:
    small(place)
    place.open().group("g").commit({0: 1})
    change_object(place.group("g", 0), lambda body: body.update(number=1))
    fails(place, "The state named 0 says that it is 1", ["GRP-2"], "verify", "CorruptTopicError",
           "GRP-2")  # fmt: skip


def corrupt_group_topic(place: Place) -> None:
    small(place)
    place.open().group("g").commit({0: 1})
    change_object(place.group("g", 0), lambda body: body.update(topic_id="another"))
    fails(place, "A state is of another topic: it is no position of this one", ["GRP-3"], "verify",
           "CorruptTopicError", "GRP-3")  # fmt: skip


def inline_small(place: Place, change: Callable[[bytes], bytes]) -> None:
    """Two records in commit 1, whose packed rows are changed."""
    topic = place.store.create_topic("topic", partitions=1, config={"inline.max.bytes": "4096"})
    place.tick()
    topic.append(kafka([record(1, b"k", b"v1"), record(2, b"k", b"v2")]))
    path = place.manifest(commit_name(1))
    body = json.loads(path.read_bytes())
    del body["checksum"]
    packed = change(base64.b64decode(body["rows"]))
    body["rows"] = base64.b64encode(packed).decode()
    body["add"][0]["size_bytes"] = len(packed)
    text = json.dumps(body, separators=(",", ":"))[:-1]
    path.write_text(f'{text},"checksum":"{zlib.crc32(text.encode()):08x}"}}')


def corrupt_inline_rows(place: Place) -> None:
    inline_small(place, lambda packed: packed[: len(packed) // 2])
    fails(place, "The rows of a commit are cut short, and its checksum fits them", ["INL-2"],
           "read", "CorruptTopicError", "INL-2")  # fmt: skip


def corrupt_inline_size(place: Place) -> None:
    inline_small(place, lambda _: pa.compress(bytes(65 << 20), codec="zstd", asbytes=True))
    fails(place, "The rows of a commit have 65 MiB when they are unpacked", ["INL-5"],
           "read", "CorruptTopicError", "INL-5")  # fmt: skip


def corrupt_inline_count(place: Place) -> None:
    def one_less(packed: bytes) -> bytes:
        unpacked = pa.CompressedInputStream(pa.BufferReader(packed), "zstd").read()
        rows = pa.ipc.open_stream(unpacked).read_all().slice(0, 1)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        return bytes(pa.compress(sink.getvalue(), codec="zstd", asbytes=True))

    inline_small(place, one_less)
    fails(place, "A commit has one row, and its entries say two", ["INL-3"],
           "read", "CorruptTopicError", "INL-3")  # fmt: skip


DAMAGED_TOPICS = (
    corrupt_truncated_commit,
    corrupt_gap_in_commits,
    corrupt_version_in_body,
    corrupt_reader_feature,
    corrupt_writer_feature,
    corrupt_escaping_path,
    corrupt_row_count,
    corrupt_segment_truncated,
    corrupt_segment_copied,
    corrupt_field_id,
    corrupt_footer,
    corrupt_segment_missing,
    corrupt_overlap,
    corrupt_leaf_truncated,
    corrupt_root,
    corrupt_root_not_tiled,
    corrupt_root_end,
    corrupt_ends_alone,
    corrupt_no_row_groups,
    corrupt_checksum,
    corrupt_leaf_checksum,
    corrupt_leaf_entries,
    corrupt_run_gap,
    corrupt_run_time,
    corrupt_hint,
    corrupt_hint_to_nowhere,
    corrupt_group_number,
    corrupt_group_topic,
    corrupt_inline_rows,
    corrupt_inline_size,
    corrupt_inline_count,
)
