"""Tables of both formats that were removed in part, or no longer fit to the topic."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from pylogtable import Store, Topic, TopicNotFoundError, UnsupportedFormatError
from tests.builders import Clock
from tests.publish import plain_delta, plain_iceberg
from tests.publish.damage import disturbed, make_topic, publish
from tests.stores import AgingDisk


@dataclass(frozen=True)
class Table:
    """The table of the topic `t` in one format. Its `log` is the folder of its metadata."""

    format: str
    folder: Path

    @property
    def formats(self) -> list[str]:
        return [self.format]

    @property
    def log(self) -> Path:
        return self.folder / ("_delta_log" if self.format == "delta" else "metadata")

    def check_newest(self, topic: Topic) -> None:
        plain = plain_delta if self.format == "delta" else plain_iceberg
        plain.check_newest(topic, self.folder)

    def lose_newest(self) -> None:
        """As if the last publication had not been."""
        if self.format == "delta":
            max(self.log.glob("0*.json")).unlink()
            return
        *_, before, newest = plain_iceberg.numbers_of(self.folder)
        plain_iceberg.metadata(self.folder, newest).unlink()
        (self.log / "version-hint.text").write_text(str(before))

    def with_state(self, **fields: object) -> None:
        """Change the state in the first entry."""
        if self.format == "delta":
            plain_delta.with_state(plain_delta.entry(self.log, 0), **fields)
        else:
            plain_iceberg.with_state(plain_iceberg.metadata(self.folder, 1), **fields)


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return Table(request.param, tmp_path / "t")


def test_handle_of_a_deleted_topic_leaves_the_new_table_alone(
    topic: Topic, store: Store, table: Table
) -> None:
    publish(topic, table.formats)
    store.delete_topic("t")
    again = make_topic(store)
    publish(again, table.formats)
    for use in (topic.unpublish, lambda: topic.register_iceberg(None, "shop.t")):
        with pytest.raises(TopicNotFoundError):
            use()
    table.check_newest(again)


@pytest.mark.parametrize("entries", [1, 3])
@pytest.mark.parametrize("then_publish", [False, True])
def test_table_that_is_unpublished_beside_a_publication_begins_anew(
    topic: Topic, disk: AgingDisk, clock: Clock, table: Table, entries: int, then_publish: bool
) -> None:
    publish(topic, table.formats, entries)
    topic.append(pa.table({"k": ["c"], "v": [1]}))
    removed: list[int] = []

    def happen() -> None:
        removed.append(topic.unpublish(table.formats))
        if then_publish:
            topic.publish(table.formats)

    def is_entry(verb: str, key: str) -> bool:
        return verb == "create" and ("_delta_log" in key or "/v" in key)

    disturbed(disk, clock, is_entry, happen).publish(table.formats)
    assert removed
    if table.format == "delta":
        plain_delta.check_table(topic, disk.below("t"))
    table.check_newest(topic)
    publish(topic, table.formats)
    table.check_newest(topic)


@pytest.mark.parametrize("step", range(6))
def test_topic_that_was_deleted_in_part_and_created_again_can_be_published(
    topic: Topic, store: Store, table: Table, step: int
) -> None:
    publish(topic, table.formats, 13 if table.format == "delta" else 3)
    kept = {path: path.read_bytes() for path in sorted(table.log.iterdir())}
    store.delete_topic("t")
    table.log.mkdir(exist_ok=True)
    for path in [*kept][len(kept) * step // 6 :]:
        path.write_bytes(kept[path])
    again = make_topic(store)
    again.append(pa.table({"k": ["c"], "v": [1]}))
    again.vacuum(dry_run=False)
    again.publish(table.formats)
    again.vacuum(dry_run=False)
    table.check_newest(again)
    assert again.verify()


@pytest.mark.records_in("files")
def test_version_that_the_topic_has_lost_is_taken_back(
    topic: Topic, store: Store, table: Table
) -> None:
    publish(topic, table.formats, 3)
    (table.folder / "_manifest" / f"{topic.version:020d}.json").unlink()
    restored = store.topic("t")
    restored.publish(table.formats)
    table.check_newest(restored)
    table.lose_newest()
    restored.append(pa.table({"k": ["other"], "v": [7]}))  # has the number of the lost one
    restored.publish(table.formats)
    table.check_newest(restored)


def test_state_of_a_newer_format_is_unsupported(topic: Topic, table: Table) -> None:
    publish(topic, table.formats)
    table.with_state(format=3, version="new")
    with pytest.raises(UnsupportedFormatError, match="format 3"):
        topic.publish(table.formats)
    assert [p.rule for p in topic.verify().problems] == ["PUB-5"]
