"""Kafka's settings: defaults, what is parsed, and how they are shown."""

from __future__ import annotations

import pytest

from pylogtable.format.config import TopicConfig, describe_config, normalize, parse_config

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


def test_the_defaults_are_kafkas() -> None:
    """kafka.md §0."""
    assert describe_config({}) == KAFKAS_DEFAULTS
    assert parse_config({}) == TopicConfig()


@pytest.mark.parametrize(("key", "text"), KAFKAS_DEFAULTS.items())
def test_every_default_may_be_set_explicitly(key: str, text: str) -> None:
    assert parse_config(normalize({key: text})) == TopicConfig()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["compact", "delete"], "compact,delete"),
        ({"delete"}, "delete"),
        (" compact ", "compact"),
        ("delete, compact", "delete, compact"),
    ],
)
def test_policies_may_be_lists(given: object, text: str) -> None:
    assert normalize({"cleanup.policy": given}) == {"cleanup.policy": text}


@pytest.mark.parametrize(
    ("policy", "compacts", "deletes"),
    [("delete", False, True), ("compact", True, False), ("compact,delete", True, True)],
)
def test_a_policy_compacts_deletes_or_both(policy: str, compacts: bool, deletes: bool) -> None:
    config = parse_config({"cleanup.policy": policy})
    assert (config.is_compacted, config.deletes) == (compacts, deletes)


def test_no_limit_is_none_where_kafka_writes_minus_one() -> None:
    config = parse_config({"retention.ms": "-1", "retention.bytes": "-1"})
    assert (config.retention_ms, config.retention_bytes) == (None, None)
    assert describe_config({"retention.ms": "-1"})["retention.ms"] == "-1"


@pytest.mark.parametrize(
    ("name", "codec"),
    [("uncompressed", "none"), ("producer", "zstd"), ("gzip", "gzip"), ("lz4", "lz4")],
)
def test_compression_types_have_their_codec(name: str, codec: str) -> None:
    assert parse_config({"compression.type": name}).parquet_codec == codec


def test_a_key_of_a_newer_writer_is_passed_over() -> None:
    assert parse_config({"retention.ms": "5", "from.the.future": "x"}).retention_ms == 5
