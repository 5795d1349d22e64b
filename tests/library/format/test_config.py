"""Topic settings: defaults, parsing, and how they are shown."""

from __future__ import annotations

import ast
import json
import shutil
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

import pylogtable
from pylogtable import TOPIC_CONFIG_KEYS, InvalidRequestError, Store, Topic
from pylogtable.format import config
from pylogtable.format.config import TopicConfig, describe_config, normalize, parse_config
from pylogtable.format.paths import commit_path
from pylogtable.storage.memory import MemoryStore
from tests.builders import kafka
from tests.conformance.corpus import TOPICS

KAFKAS_DEFAULTS = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "segment.bytes": "1073741824",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "9223372036854775807",
    "delete.retention.ms": "86400000",
    "min.cleanable.dirty.ratio": "0.5",
    "message.timestamp.type": "CreateTime",
    "compression.type": "producer",
    "file.delete.delay.ms": "60000",
}


DEFAULTS = {  # the others are settings of our own
    **KAFKAS_DEFAULTS,
    "publish.formats": "none",
    "publish.max.lag.ms": "2000",
    "offsets.retention.minutes": "-1",
    "publish.view": "records",
    "inline.max.bytes": "16384",
    "combined.appends": "true",
}


def test_defaults_are_those_of_kafka() -> None:
    assert describe_config({}) == DEFAULTS
    assert parse_config({}) == TopicConfig()


@pytest.mark.parametrize("key", TOPIC_CONFIG_KEYS)
def test_every_default_can_be_set_explicitly(key: str) -> None:
    assert parse_config(normalize({key: DEFAULTS[key]})) == TopicConfig()


@cache
def attributes_read(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


@pytest.mark.parametrize("key", TOPIC_CONFIG_KEYS)
def test_every_key_that_can_be_set_is_used_by_the_library(key: str) -> None:
    """Read outside of format/config.py: as the field itself, or as a property made of it."""
    assert config.__file__ is not None
    home, library = Path(config.__file__), Path(pylogtable.__file__).parent
    # What merely shows a setting does not use it.
    showing = {library / "report", library / "results", library / "cli"}
    used: set[str] = set()
    for path in library.rglob("*.py"):
        if path != home and not showing & set(path.parents):
            used |= attributes_read(path)
    field = key.replace(".", "_")
    assert field in {f.name for f in fields(TopicConfig)}
    made_of_it = {
        name
        for name, made in vars(TopicConfig).items()
        if isinstance(made, property) and made.fget and field in made.fget.__code__.co_names
    }
    assert used & {field, *made_of_it}


class TestFileDeleteDelay:
    """`file.delete.delay.ms` could be set once, and never had an effect [CONF-2]."""

    KEY = "file.delete.delay.ms"

    @pytest.fixture
    def old(self, store: Store, objects: MemoryStore) -> Topic:
        """A topic made by a version that still took the key."""
        store.create_topic("old")
        first = f"old/{commit_path(0)}"
        commit = json.loads(objects.read(first) or b"")
        commit["topic"]["config"] = {self.KEY: "5"}
        del commit["checksum"]  # that version wrote none
        objects.write(first, json.dumps(commit).encode())
        return store.topic("old")

    def test_unused_key_cannot_be_set(self, store: Store) -> None:
        with pytest.raises(InvalidRequestError, match="vacuum, and its retention_ms"):
            store.create_topic("t", config={self.KEY: "5"})
        topic = store.create_topic("t")
        with pytest.raises(InvalidRequestError, match="has no effect here and cannot be set"):
            topic.alter(config={self.KEY: "60000"})

    def test_topic_with_unused_key_opens_and_can_remove_it(self, old: Topic) -> None:
        assert old.describe().config[self.KEY] == "5"
        old.alter(config={"retention.ms": "1000"})
        assert old.describe().config[self.KEY] == "5"
        old.alter(config={self.KEY: None})
        assert old.describe().config[self.KEY] == "60000"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["compact", "delete"], "compact,delete"),
        ({"delete"}, "delete"),
        (" compact ", "compact"),
        ("delete, compact", "delete, compact"),
    ],
)
def test_a_policy_can_be_given_as_a_list(given: object, text: str) -> None:
    assert normalize({"cleanup.policy": given}) == {"cleanup.policy": text}


@pytest.mark.parametrize(
    ("policy", "compacts", "deletes"),
    [("delete", False, True), ("compact", True, False), ("compact,delete", True, True)],
)
def test_a_policy_compacts_deletes_or_both(policy: str, compacts: bool, deletes: bool) -> None:
    config = parse_config({"cleanup.policy": policy})
    assert (config.is_compacted, config.deletes) == (compacts, deletes)


def test_minus_one_means_no_limit_and_is_parsed_as_none() -> None:
    config = parse_config({"retention.ms": "-1", "retention.bytes": "-1"})
    assert (config.retention_ms, config.retention_bytes) == (None, None)
    assert describe_config({"retention.ms": "-1"})["retention.ms"] == "-1"


@pytest.mark.parametrize(
    ("name", "codec"),
    [("uncompressed", "none"), ("producer", "zstd"), ("gzip", "gzip"), ("lz4", "lz4")],
)
def test_compression_types_have_their_codec(name: str, codec: str) -> None:
    assert parse_config({"compression.type": name}).parquet_codec == codec


def test_a_key_set_by_a_newer_writer_is_ignored() -> None:
    assert parse_config({"retention.ms": "5", "from.the.future": "x"}).retention_ms == 5


def test_setting_of_a_newer_writer_stops_writers_and_no_reader(tmp_path: Path) -> None:
    folder = tmp_path / "shifted"
    shutil.copytree(TOPICS / "shifted" / "topic", folder)
    first = folder / "_manifest" / "00000000000000000000.json"
    commit = json.loads(first.read_bytes())
    commit["topic"]["config"] = {"compression.type": "brotli"}
    first.write_text(json.dumps(commit))
    topic = pylogtable.open_topic(str(folder))
    assert topic.read().read_all().num_rows == topic.count() == 5
    assert topic.describe().config["compression.type"] == "brotli"
    with pytest.raises(pylogtable.UnsupportedFormatError, match="brotli"):
        topic.append(kafka(["k"]))
    with pytest.raises(pylogtable.UnsupportedFormatError, match="brotli"):
        topic.merge()
    topic.alter(config={"compression.type": "zstd"})
    topic.append(kafka(["k"]))
    assert topic.count() == 6
