"""An Iceberg table whose metadata was damaged, removed in part, or no longer fits to the topic."""

from __future__ import annotations

import io
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.avro.encoder import BinaryEncoder

from pylogtable import CorruptTopicError, Topic
from pylogtable.publish.iceberg.manifests import ManifestFiles
from pylogtable.publish.iceberg.table import IcebergTable
from pylogtable.runtime import Runtime
from pylogtable.storage.local import LocalStore
from tests.builders import Clock
from tests.publish.damage import (
    delete_number,
    disturbed,
    each_time_restored,
    publish,
)
from tests.publish.plain_iceberg import check_newest, metadata
from tests.stores import AgingDisk, Fault, SimulatedCrash

FORMATS = ["iceberg"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "t"


@pytest.mark.records_in("files")
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_without_a_hint_the_newest_is_found_beyond_a_gap(
    topic: Topic, folder: Path, lost: int
) -> None:
    publish(topic, FORMATS, 4)
    metadata(folder, lost).unlink()
    (folder / "metadata" / "version-hint.text").unlink()
    assert topic.publish(FORMATS).tables[0].steps == 0
    check_newest(topic, folder)  # the hint is there again
    publish(topic, FORMATS)
    check_newest(topic, folder)


def test_unpublish_that_was_killed_at_any_step_can_be_published_over(
    topic: Topic, disk: AgingDisk, clock: Clock, folder: Path
) -> None:
    publish(topic, FORMATS, 3)
    for at in each_time_restored(folder / "metadata"):
        dying = disturbed(disk, clock, delete_number(at), lambda: Fault.CRASH_AFTER)
        with pytest.raises(SimulatedCrash):
            dying.unpublish(FORMATS)
        topic.publish(FORMATS)
        check_newest(topic, folder)
        topic.unpublish(FORMATS)
        assert not (folder / "metadata").exists()


def test_publication_beside_an_unpublish_at_any_step_leaves_no_table_or_a_right_one(
    topic: Topic, disk: AgingDisk, clock: Clock, folder: Path
) -> None:
    publish(topic, FORMATS, 3)

    def happen() -> None:
        topic.publish(FORMATS)

    for at in each_time_restored(folder / "metadata"):
        topic.append(pa.table({"k": ["c"], "v": [at]}))
        disturbed(disk, clock, delete_number(at), happen).unpublish(FORMATS)
        assert not list((folder / "metadata").iterdir())
        topic.publish(FORMATS)
        check_newest(topic, folder)
        topic.unpublish(FORMATS)


def test_damaged_table_can_be_removed_if_its_files_are_ours(topic: Topic, folder: Path) -> None:
    publish(topic, FORMATS, 2)
    metadata(folder, 2).write_text("{")
    with pytest.raises(CorruptTopicError, match="unpublish the topic and publish it again"):
        topic.publish(FORMATS)
    assert [p.rule for p in topic.verify().problems] == ["PUB-1"]
    topic.unpublish(FORMATS)
    topic.publish(FORMATS)
    check_newest(topic, folder)


def test_damaged_table_of_unknown_origin_stays(topic: Topic, folder: Path) -> None:
    (folder / "metadata").mkdir()
    metadata(folder, 1).write_text("{")
    with pytest.raises(CorruptTopicError):
        topic.unpublish(FORMATS)
    assert metadata(folder, 1).exists()


def test_verify_names_manifests_and_files_that_are_missing(topic: Topic, folder: Path) -> None:
    publish(topic, FORMATS, 2)
    shown = topic.segments()["path"].to_pylist()
    topic.merge()
    assert topic.verify()
    (folder / shown[0]).unlink()
    assert [(p.rule, p.path) for p in topic.verify().problems] == [("PUB-1", shown[0])]
    for path in (folder / "metadata").glob("pylogtable-*.avro"):
        path.unlink()
    (problem,) = topic.verify().problems
    assert problem.rule == "PUB-1"
    assert problem.path.endswith(".avro")


def files_shown(folder: Path) -> int:
    """How many files the newest entry shows, as a publisher reads it."""
    table = IcebergTable(LocalStore(folder), Runtime())
    newest = table.newest()
    assert newest is not None
    return len(table.files(newest))


@pytest.fixture(params=["snap-*.avro", "pylogtable-*.avro"])
def avro(request: pytest.FixtureRequest, topic: Topic, folder: Path) -> Path:
    """The manifest list, or the manifest."""
    publish(topic, FORMATS)
    (found,) = (folder / "metadata").glob(request.param)
    return found


def after_header(data: bytes) -> int:
    """Where the first block begins. The marker of the header is that of the last block."""
    return data.index(data[-16:]) + 16


def test_list_or_manifest_that_was_cut_is_named_with_the_way_out(
    topic: Topic, folder: Path, avro: Path
) -> None:
    data = avro.read_bytes()
    header = after_header(data)
    for size in (0, 3, 4, 100, header - 1, *range(header + 1, len(data), 5)):
        avro.write_bytes(data[:size])
        with pytest.raises(CorruptTopicError, match=rf"not a whole Avro file \({size} bytes\)"):
            files_shown(folder)
    (problem,) = topic.verify().problems
    assert problem.path == f"metadata/{avro.name}"
    assert "unpublish the topic and publish it again" in problem.detail
    avro.write_bytes(data + b"x")
    assert not topic.verify()
    avro.write_bytes(data)
    assert topic.verify()


def test_list_or_manifest_with_a_damaged_byte_gives_no_error_but_ours(
    folder: Path, avro: Path
) -> None:
    data = avro.read_bytes()
    told = []
    for at in (*range(0, after_header(data), 100), *range(after_header(data), len(data), 3)):
        avro.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        try:
            files_shown(folder)
        except CorruptTopicError as error:
            told.append(str(error))
    assert len(told) > 10
    assert all("unpublish the topic and publish it again" in text for text in told)


def with_block(data: bytes, count: int, block: bytes) -> bytes:
    """The Avro file with these bytes as its only block."""
    body = io.BytesIO()
    encoder = BinaryEncoder(body)
    encoder.write_int(count)
    deflate = zlib.compressobj(wbits=-15)  # zlib.compress knows it since Python 3.11
    encoder.write_bytes(deflate.compress(block) + deflate.flush())
    return data[: after_header(data)] + body.getvalue() + data[-16:]


def test_list_or_manifest_with_records_that_end_too_early_is_damaged(
    folder: Path, avro: Path
) -> None:
    data = avro.read_bytes()
    decoder = StreamingBinaryDecoder(data[after_header(data) :])
    count, block = decoder.read_int(), zlib.decompress(decoder.read_bytes(), wbits=-15)
    shown = files_shown(folder)
    avro.write_bytes(with_block(data, count, block))
    assert files_shown(folder) == shown
    for size in range(len(block)):
        avro.write_bytes(with_block(data, count, block[:size]))
        with pytest.raises(CorruptTopicError, match="it cannot be decoded"):
            files_shown(folder)


@pytest.mark.parametrize(
    ("place", "detail"),
    [("/tmp/elsewhere.parquet", "it is not below"), ("{}/a//b.parquet", "it is no name")],
)
def test_place_that_no_object_can_have_is_damage(folder: Path, place: str, detail: str) -> None:
    location = LocalStore(folder).url
    manifests = ManifestFiles(LocalStore(folder), location)
    with pytest.raises(CorruptTopicError, match=f"{detail}.*unpublish the topic"):
        manifests.key(place.format(location))
