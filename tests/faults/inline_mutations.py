"""Damages records in commits: their text, the packed bytes, the stream in them, or the rows."""

from __future__ import annotations

import base64
import io
import json
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tests.faults.mutations import Mutant, change_rows, encoded, kind_of, refit, refitted

BOMB_BYTES = (40 << 20, 64 << 20, 70 << 20)


def change_inline_rows(rng: random.Random, made: Mutant) -> None:
    """Other rows in a commit. Its entries, and all that count their bytes, may be made to fit, so
    that only a look into the rows shows that they are wrong."""
    body = json.loads(made.objects[made.key])
    packed = base64.b64decode(body["rows"])
    how = rng.random()
    if how < 0.1:
        body["rows"] = _other_text(rng, made, body["rows"])
    elif how < 0.25:
        packed = _flipped(rng, made, packed, "packed")
    elif how < 0.6:
        stream = _flipped(rng, made, _unpacked(packed), "stream")
        packed = pa.compress(stream, "zstd", asbytes=True)
    elif how < 0.65:
        packed = _of_another_commit(rng, made)
    else:
        packed = _written_anew(rng, made, _unpacked(packed))
    if how >= 0.1:
        body["rows"] = base64.b64encode(packed).decode()
    if how < 0.1 or rng.random() < 0.2:
        made.put(made.key, encoded(rng, made, body))
        return
    made.told.append("its entries fit")
    made.put(made.key, refitted(body))
    _refit_sizes(made, body, len(packed))


def _other_text(rng: random.Random, made: Mutant, text: str) -> str:
    at = rng.randrange(len(text))
    others = {
        "a sign that is none of base64": text[:at] + rng.choice("-_*\n é") + text[at + 1 :],
        "a line break": text[:at] + "\n" + text[at:],
        "one sign less": text[:-1],
        "four signs less": text[:-4],
        "more padding": text + "=",
        "padding in the middle": text[:at] + "==" + text[at + 2 :],
        "no text": "",
    }
    told = rng.choice(sorted(others))
    made.told.append(f"rows: {told}")
    return others[told]


def _flipped(rng: random.Random, made: Mutant, data: bytes, what: str) -> bytes:
    """Most numbers in a stream are small, so large ones are put over them as well."""
    new = bytearray(data)
    how = rng.random()
    if how < 0.1:
        made.told.append(f"{what} cut")
        return data[: rng.randrange(len(data))]
    if how < 0.2:
        made.told.append(f"{what} extended")
        return data + rng.choice([b"\0" * 9, data, rng.randbytes(40), b"\xff" * 4])
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at = rng.randrange(len(data))
        if how < 0.4:
            number = rng.choice([-1, 2**31 - 1, -(2**31), 2**24, 255, 1])
            new[at : at + 4] = number.to_bytes(4, "little", signed=True)
        else:
            new[at] ^= rng.choice([1, 2, 4, 8, 16, 32, 64, 128, 255])
        made.told.append(f"{what} changed at byte {at}")
    return bytes(new)


def _of_another_commit(rng: random.Random, made: Mutant) -> bytes:
    commits = sorted(key for key in made.objects if kind_of(key) == "commit")
    other = rng.choice([key for key in commits if b'"rows":"' in made.objects[key]])
    made.told.append(f"the rows of {other}")
    return base64.b64decode(json.loads(made.objects[other])["rows"])


def _written_anew(rng: random.Random, made: Mutant, stream: bytes) -> bytes:
    """The rows in a stream that is whole, but not what it must be, or with other values."""
    batch = pa.ipc.open_stream(stream).read_all().combine_chunks().to_batches()[0]
    shapes: dict[str, Callable[[], bytes]] = {
        "two batches": lambda: _stream(batch.schema, [batch.slice(0, 1), batch.slice(1)]),
        "no batch": lambda: _stream(batch.schema, []),
        "an empty batch": lambda: _stream(batch.schema, [batch.slice(0, 0)]),
        "packed buffers": lambda: _stream(batch.schema, [batch], compression="zstd"),
        "a dictionary": lambda: _with_dictionary(batch),
        "a file": lambda: _file(batch),
        "a column less": lambda: _without_column(rng, batch),
        "a column twice": lambda: _column_twice(rng, batch),
        "a column of another type": lambda: _other_type(rng, batch),
        "a bomb": lambda: _bomb(rng, batch),
    }
    if rng.random() < 0.4:
        told = rng.choice(sorted(shapes))
        made.told.append(f"rows: {told}")
        return pa.compress(shapes[told](), "zstd", asbytes=True)  # type: ignore[no-any-return]
    rows = batch.to_pylist()
    for _ in range(rng.choice([1, 1, 2])):
        made.told.append(change_rows(rng, rows))
    schema = pa.schema([field.with_nullable(True) for field in batch.schema])
    try:
        changed = pa.RecordBatch.from_pylist(rows, schema=schema)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        made.told.append("which does not fit, so there are none")
        changed = batch.slice(0, 0)
    packed: bytes = pa.compress(_stream(changed.schema, [changed]), "zstd", asbytes=True)
    return packed


def _unpacked(packed: bytes) -> bytes:
    with pa.CompressedInputStream(io.BytesIO(packed), "zstd") as stream:
        data: bytes = stream.read()
    return data


def _stream(schema: pa.Schema, batches: list[pa.RecordBatch], **how: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(**how)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def _file(batch: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _with_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> bytes:
    """The others keep what their fields say."""
    at = batch.schema.get_field_index(name)
    changed = batch.set_column(at, batch.schema.field(at).with_type(column.type), column)
    return _stream(changed.schema, [changed])


def _bytes_column(batch: pa.RecordBatch) -> str:
    """The last one, which is not the key: the oracle keeps only digests of large values."""
    names = [field.name for field in batch.schema if field.type in (pa.binary(), pa.string())]
    return names[-1]


def _with_dictionary(batch: pa.RecordBatch) -> bytes:
    name = _bytes_column(batch)
    return _with_column(batch, name, batch.column(name).dictionary_encode())


def _without_column(rng: random.Random, batch: pa.RecordBatch) -> bytes:
    gone = rng.choice(batch.schema.names)
    left = batch.select([name for name in batch.schema.names if name != gone])
    return _stream(left.schema, [left])


def _column_twice(rng: random.Random, batch: pa.RecordBatch) -> bytes:
    at = rng.randrange(batch.num_columns)
    columns = [*batch.columns, batch.column(at)]
    schema = batch.schema.append(batch.schema.field(at))
    return _stream(schema, [pa.RecordBatch.from_arrays(columns, schema=schema)])


def _other_type(rng: random.Random, batch: pa.RecordBatch) -> bytes:
    kinds = [pa.int64(), pa.large_binary(), pa.string_view(), pa.null(), pa.list_(pa.int8())]
    column = pa.nulls(batch.num_rows, rng.choice(kinds))
    return _with_column(batch, rng.choice(batch.schema.names), column)


def _bomb(rng: random.Random, batch: pa.RecordBatch) -> bytes:
    name = _bytes_column(batch)
    values = [b"0" * rng.choice(BOMB_BYTES), *[b"0"] * (batch.num_rows - 1)]
    return _with_column(batch, name, pa.array(values, batch.schema.field(name).type))


def _refit_sizes(made: Mutant, body: Any, size: int) -> None:
    """The sizes of the commit's entries add up to that of its rows, wherever the entries are."""
    own = [entry for entry in body["add"] if entry["path"].startswith(f"{made.key}@")]
    left = size
    for number, entry in enumerate(own):
        mine = left if number == len(own) - 1 else min(left, entry["size_bytes"])
        left -= mine
        refit(made, entry["path"], {"size_bytes": mine}, mine - entry["size_bytes"])
