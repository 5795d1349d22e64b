"""Golden topics with damaged files, rows and leaves: one for each rule that whoever reads them has
to check. The manifest is sound, or says what no file can keep."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from damaged_topics import fails, inline_small, with_leaf
from golden_place import Place, change_object, commit_name, kafka, record, table_of

from pylogtable.format.json_bytes import checksum

Table = pa.Table
Change = Callable[[Table], Table]
ID = b"PARQUET:field_id"


def _corrupt(place: Place, what: str, rule: str, when: str = "read") -> None:
    fails(place, what, [rule], when, "CorruptTopicError", rule)


def _one_file(place: Place) -> None:
    """Four records in one file."""
    topic = place.store.create_topic("topic", partitions=1)
    place.tick()
    topic.append(kafka([record(n, b"k", b"v%d" % n) for n in range(4)]))


def _rewrite(place: Place, change: Change, **options: Any) -> None:
    """Write the file of commit 1 again, with other columns. Its entry does not know the footer."""
    (path,) = (place.topic_folder / "partition=0").glob("*.parquet")
    pq.write_table(change(pq.ParquetFile(path).read()), path, write_page_checksum=True, **options)
    _change_entry(place, size_bytes=path.stat().st_size, footer_checksum=None)


def _change_entry(place: Place, **fields: Any) -> None:
    change_object(place.manifest(commit_name(1)), lambda body: body["add"][0].update(fields))


def _with_column(name: str, values: pa.Array, **about: Any) -> Change:
    """Replaces a column; `about` may say its id, or that it may be null."""

    def change(table: Table) -> Table:
        index = table.schema.get_field_index(name)
        field = table.schema.field(index).with_type(values.type)
        field = field.with_nullable(about.get("nullable", field.nullable))
        if "ids" in about:
            field = field.with_metadata(about["ids"])
        return table.set_column(index, field, values)

    return change


def _offsets(*offsets: int) -> Change:
    return _with_column("offset", pa.array(offsets, pa.int64()))


def corrupt_page(place: Place) -> None:
    _one_file(place)
    (path,) = (place.topic_folder / "partition=0").glob("*.parquet")
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(3)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data = bytearray(path.read_bytes())
    data[start + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
    _corrupt(place, "A bit of a page has changed since its checksum was taken", "SEG-2")


def corrupt_file_cut(place: Place) -> None:
    _one_file(place)
    (path,) = (place.topic_folder / "partition=0").glob("*.parquet")
    path.write_bytes(path.read_bytes()[:-8])
    _corrupt(place, "A file lacks its end: there is no footer to be compared", "SEG-2")


def corrupt_file_path(place: Place) -> None:
    _one_file(place)
    _rewrite(place, lambda t: t.replace_schema_metadata({"pylogtable.path": "partition=0/x"}))
    _corrupt(place, "The footer of a file names another file", "SEG-11")


def corrupt_offsets_order(place: Place) -> None:
    _one_file(place)
    _rewrite(place, _offsets(0, 2, 1, 3))
    _corrupt(place, "Offsets go back inside of a file; least and greatest are right", "SEG-11")


def corrupt_offsets_beyond(place: Place) -> None:
    _one_file(place)
    _rewrite(place, _offsets(0, 1, 2, 4))
    _corrupt(place, "A file has an offset beyond the claim of its entry", "SEG-11")


def corrupt_row_group_start(place: Place) -> None:
    _one_file(place)
    _rewrite(place, lambda table: table, row_group_size=2)
    _change_entry(place, row_groups=[0, 1])
    _corrupt(place, "A row group begins at another offset than its entry says", "SEG-11")


def corrupt_row_group_count(place: Place) -> None:
    _one_file(place)
    _change_entry(place, row_groups=[0, 2])
    _corrupt(place, "A file has one row group, and its entry two", "SEG-5")


def corrupt_times(place: Place) -> None:
    _one_file(place)
    _change_entry(place, max_timestamp_us=record(9, None, None)["timestamp"])
    _corrupt(place, "The latest record of a file is earlier than its entry says", "SEG-5")


def corrupt_column_type(place: Place) -> None:
    _one_file(place)
    _rewrite(place, _with_column("value", pa.array(range(4), pa.int64())))
    _corrupt(place, "A binary column is long in the file", "SEG-3")


def corrupt_column_text(place: Place) -> None:
    _one_file(place)
    _rewrite(place, _with_column("value", pa.array(list("abcd"))))
    _corrupt(place, "A binary column is text in the file: it fits an append, but no file", "SEG-3")


def corrupt_column_missing(place: Place) -> None:
    _one_file(place)
    _rewrite(place, lambda table: table.drop_columns(["key"]))
    _corrupt(place, "A file lacks a key column, which no file may", "SEG-3")


def corrupt_column_null(place: Place) -> None:
    topic = place.store.create_topic("topic", schema=pa.schema([pa.field("n", pa.int32(), False)]))
    place.tick()
    types = {"timestamp": pa.timestamp("us", "UTC"), "n": pa.int32()}
    rows = [{"timestamp": record(n, None, None)["timestamp"], "n": n} for n in range(2)]
    topic.append(table_of(rows, types, None))
    _rewrite(place, _with_column("n", pa.array([0, None], pa.int32()), nullable=True))
    _corrupt(place, "A column that is not nullable has a null in the file", "SEG-3")


def corrupt_offset_nullable(place: Place) -> None:
    _one_file(place)
    _rewrite(place, _with_column("offset", pa.array(range(4), pa.int64()), nullable=True))
    _corrupt(place, "The column of the offsets is not required in the file", "SEG-3")


def corrupt_key_narrower(place: Place) -> None:
    schema = {"id": pa.int32(), "n": pa.int32()}
    topic = place.store.create_topic("topic", schema=schema, key=["id"], partitions=1)
    place.tick()
    rows = [{"timestamp": record(n, None, None)["timestamp"], "id": n, "n": n} for n in range(2)]
    types = {"timestamp": pa.timestamp("us", "UTC"), **schema}
    topic.append(table_of(rows, types, None))
    _rewrite(place, _with_column("id", pa.array([0, 1], pa.int16())))
    _corrupt(place, "A key column is narrower in the file: key columns are never widened", "SEG-3")


def corrupt_id_missing(place: Place) -> None:
    _one_file(place)
    _rewrite(place, _with_column("value", pa.array([b"v"] * 4), ids={}))
    _corrupt(place, "A file has ids, and one of its columns has none", "META-6")


def corrupt_id_inside(place: Place) -> None:
    _one_file(place)
    ids = [pa.field("key", pa.string(), metadata={ID: b"20"}),
           pa.field("value", pa.binary(), metadata={ID: b"99"})]  # fmt: skip
    element = pa.field("element", pa.struct(ids), metadata={ID: b"19"})
    _rewrite(place, _with_column("headers", pa.nulls(4, pa.list_(element))))
    _corrupt(place, "A field inside of a column has another id than the topic's", "META-6")


def _change_rows(place: Place, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a commit with rows, which keeps a right checksum [INL-4]."""
    path = place.manifest(commit_name(1))
    body = json.loads(path.read_bytes())
    del body["checksum"]
    change(body)
    text = json.dumps(body, separators=(",", ":"))[:-1]
    path.write_text(f'{text},"checksum":"{checksum(text.encode())}"}}')


def corrupt_inline_base64(place: Place) -> None:
    inline_small(place, lambda packed: packed)
    _change_rows(place, lambda body: body.update(rows=f"*{body['rows'][1:]}"))
    _corrupt(place, "The rows of a commit have a character that base64 does not have", "INL-2")


def corrupt_inline_batches(place: Place) -> None:
    def split(packed: bytes) -> bytes:
        unpacked = pa.CompressedInputStream(pa.BufferReader(packed), "zstd").read()
        rows = pa.ipc.open_stream(unpacked).read_all()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows, max_chunksize=1)
        return bytes(pa.compress(sink.getvalue(), codec="zstd", asbytes=True))

    inline_small(place, split)
    _corrupt(place, "The rows of a commit are two batches", "INL-2")


def corrupt_inline_times(place: Place) -> None:
    inline_small(place, lambda packed: packed)
    later = record(9, None, None)["timestamp"]
    _change_rows(place, lambda body: body["add"][0].update(max_timestamp_us=later))
    _corrupt(place, "The rows of a commit are earlier than its entry says", "SEG-5")


def _behind_root(place: Place, change: Callable[[dict[str, Any]], None]) -> None:
    """The commit with the rows is kept below a root, which has its entry, and is changed."""
    inline_small(place, lambda packed: packed)
    place.tick()
    topic = place.open()
    topic.alter(config={"retention.bytes": 10**9})
    topic._log.manifest.write_root(topic._log.known, lambda: "leaf")
    place.manifest(commit_name(0)).unlink()
    _change_rows(place, change)


def corrupt_inline_share(place: Place) -> None:
    _behind_root(place, lambda body: body["add"][0].update(size_bytes=7))
    _corrupt(place, "Below a root, the entry of a commit has not the size of its rows", "INL-3")


def corrupt_inline_entry(place: Place) -> None:
    _behind_root(place, lambda body: body["add"][0].update(base_offset=1, end_offset=3))
    _corrupt(place, "Below a root, a commit has other offsets for its rows", "INL-3")


def corrupt_inline_no_rows(place: Place) -> None:
    _behind_root(place, lambda body: body.update(rows=None, add=[]))
    _corrupt(place, "A root has an entry of a commit without rows", "INL-3")


def _leaf(place: Place, change: Change) -> None:
    """A topic with a leaf, which was changed. The root does not know its checksum."""
    with_leaf(place, False, lambda root: root.pop("leaf_checksums"))
    path = place.manifest("leaf-leaf.parquet")
    pq.write_table(change(pq.ParquetFile(path).read()), path)


def _with_values(name: str, row: int, value: Any) -> Change:
    def change(table: Table) -> Table:
        values = table[name].to_pylist()
        values[row] = value
        index = table.schema.get_field_index(name)
        field = table.schema.field(index)
        return table.set_column(index, field, pa.array(values, field.type))

    return change


def corrupt_leaf_order(place: Place) -> None:
    _leaf(place, lambda table: table.take([1, 0, 2, 3, 4, 5]))
    _corrupt(place, "The entries of a leaf are not in order", "LEAF-1")


def corrupt_leaf_columns(place: Place) -> None:
    _leaf(place, lambda table: table.drop_columns(["tombstones"]))
    _corrupt(place, "A leaf lacks a column", "LEAF-1")


def corrupt_leaf_missing(place: Place) -> None:
    with_leaf(place, False, lambda root: None)
    place.manifest("leaf-leaf.parquet").unlink()
    _corrupt(place, "A leaf that the root names is missing", "LEAF-1")


def corrupt_leaf_count(place: Place) -> None:
    with_leaf(place, False, lambda root: root["leaves"][0].__setitem__(1, 7))
    _corrupt(place, "A leaf has all entries of its run, and its root says more", "LEAF-3")


def corrupt_leaf_path(place: Place) -> None:
    _leaf(place, _with_values("path", 2, "partition=0/../../../secret-0.parquet"))
    _corrupt(place, "A path in a leaf leads out of the topic", "PATH-4")


def corrupt_leaf_entry(place: Place) -> None:
    _leaf(place, _with_values("tombstones", 2, 9))
    _corrupt(place, "An entry of a leaf has more tombstones than records", "SEG-10")


def corrupt_leaf_floor(place: Place) -> None:
    _leaf(place, _with_values("path", 2, f"partition=0/{9:020d}-f.parquet"))
    _corrupt(place, "The first record of an entry in a leaf is below the floor of its file",
             "SEG-10")  # fmt: skip


def corrupt_log_start(place: Place) -> None:
    _one_file(place)
    place.tick()
    place.open().delete_records({0: 1})
    change_object(place.manifest(commit_name(2)),
                  lambda body: body["log_starts"][0].update(offset=5))  # fmt: skip
    _corrupt(place, "A log start moves beyond the end", "LOG-6", "open")


def corrupt_replaced_nothing(place: Place) -> None:
    _one_file(place)
    place.tick()
    place.open().alter(config={"retention.bytes": 10**9})
    nothing = {"partition": 0, "start": 0, "end": 0, "dropped": {}}
    change_object(place.manifest(commit_name(2)), lambda body: body.update(replaced=[nothing]))
    _corrupt(place, "A replaced range is empty, and ends at the log start", "LOG-7", "open")


DAMAGED_FILES = (
    *(corrupt_page, corrupt_file_cut, corrupt_file_path),
    *(corrupt_offsets_order, corrupt_offsets_beyond),
    *(corrupt_row_group_start, corrupt_row_group_count, corrupt_times),
    *(corrupt_column_type, corrupt_column_text, corrupt_column_missing, corrupt_column_null),
    *(corrupt_offset_nullable, corrupt_key_narrower, corrupt_id_missing, corrupt_id_inside),
    *(corrupt_inline_base64, corrupt_inline_batches, corrupt_inline_times),
    *(corrupt_inline_share, corrupt_inline_entry, corrupt_inline_no_rows),
    *(corrupt_leaf_order, corrupt_leaf_columns, corrupt_leaf_missing, corrupt_leaf_count),
    *(corrupt_leaf_path, corrupt_leaf_entry, corrupt_leaf_floor),
    *(corrupt_log_start, corrupt_replaced_nothing),
)
