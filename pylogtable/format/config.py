"""A topic's configuration: Kafka's names, defaults and bounds, parsed and checked once.

The manifest stores only what was set, as strings. Defaults are applied when it is read [CONF-1].
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from pylogtable.arguments import check_mapping
from pylogtable.errors import InvalidRequestError, UnsupportedFormatError
from pylogtable.format.model import MAX_ROWS_BYTES

FOREVER = 2**63 - 1
DAY_MS = 86_400_000

# How long a version stays readable, and how old a file that no commit names must be before vacuum
# removes it.
MANIFEST_RETENTION_MS = 7 * DAY_MS
# A writer does not commit files, or plan on a state, older than this [COMMIT-8].
STALE_AFTER_MS = MANIFEST_RETENTION_MS // 2
#: A vacuum beside published tables keeps files so much longer. So these need not remember a file
#: that they stopped to show soon after the topic did [PUB-7].
TABLES_KEEP_MS = 3_600_000

#: The table formats that a topic can be published in [PUB-1].
PUBLISH_FORMATS = ("delta", "iceberg")

#: What a published table shows: every record, or the newest of each key [PUB-9].
RECORDS, LATEST = "records", "latest"

_COMPRESSIONS = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The typed values. The field for `retention.ms` is `retention_ms`, and so on.

    `None` means no limit; Kafka writes -1.
    """

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    retention_ms: int | None = 7 * DAY_MS
    retention_bytes: int | None = None
    segment_bytes: int = 2**30
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOREVER
    delete_retention_ms: int = DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    message_timestamp_type: str = "CreateTime"
    compression_type: str = "producer"
    publish_formats: frozenset[str] = frozenset()
    publish_max_lag_ms: int = 2000
    offsets_retention_minutes: int | None = None
    publish_view: str = RECORDS
    inline_max_bytes: int = 16 << 10
    combined_appends: bool = True

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def uses_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def parquet_codec(self) -> str:
        """The codec of new segments. `producer` means that the writer chooses: zstd."""
        if self.compression_type == "uncompressed":
            return "none"
        return "zstd" if self.compression_type == "producer" else self.compression_type


def _int(low: int, high: int = FOREVER) -> Callable[[str, str], int]:
    def parse(key: str, text: str) -> int:
        if not re.fullmatch(r"-?[0-9]+", text):
            raise _bad(key, text, "is not a whole number")
        if not low <= int(text) <= high:
            raise _bad(key, text, f"must be {low} to {high}")
        return int(text)

    return parse


def _limit(key: str, text: str) -> int | None:
    number = _int(-1)(key, text)
    return None if number == -1 else number


def _age(key: str, text: str) -> int | None:
    if _limit(key, text) == 0:
        raise _bad(key, text, "must be at least 1, or -1 for never")
    return _limit(key, text)


def _ratio(key: str, text: str) -> float:
    if not re.fullmatch(r"-?[0-9]*\.?[0-9]+([eE]-?[0-9]+)?", text):
        raise _bad(key, text, "is not a number")
    number = float(text)
    if not 0 <= number <= 1:
        raise _bad(key, text, "must be between 0 and 1")
    return number


def _parts(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _policy(key: str, text: str) -> frozenset[str]:
    policies = _parts(text)
    if not policies or not policies <= {"delete", "compact"}:
        raise _bad(key, text, "must be delete, compact or compact,delete")
    return policies


def _formats(key: str, text: str) -> frozenset[str]:
    if text == "none":
        return frozenset()
    formats = frozenset(part.strip() for part in text.split(","))
    if not formats <= set(PUBLISH_FORMATS):
        raise _bad(key, text, f"must be none, or made of {', '.join(PUBLISH_FORMATS)}")
    return formats


def _flag(key: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise _bad(key, text, "must be true or false")
    return text.lower() == "true"


def _one_of(*allowed: str) -> Callable[[str, str], str]:
    def parse(key: str, text: str) -> str:
        if text not in allowed:
            raise _bad(key, text, f"must be one of {', '.join(allowed)}")
        return text

    return parse


_PARSERS: dict[str, Callable[[str, str], object]] = {
    "cleanup.policy": _policy,
    "retention.ms": _limit,
    "retention.bytes": _limit,
    "segment.bytes": _int(14),
    "min.compaction.lag.ms": _int(0),
    "max.compaction.lag.ms": _int(1),
    "delete.retention.ms": _int(0),
    "min.cleanable.dirty.ratio": _ratio,
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "compression.type": _one_of(*_COMPRESSIONS),
    "publish.formats": _formats,
    "publish.max.lag.ms": _int(1),
    "offsets.retention.minutes": _age,
    "publish.view": _one_of(RECORDS, LATEST),
    "inline.max.bytes": _int(0, MAX_ROWS_BYTES),
    "combined.appends": _flag,
}

# Keys whose value may be given as a list.
_LISTS = ("cleanup.policy", "publish.formats")

#: Every key that can be set with `create_topic` and `alter`.
TOPIC_CONFIG_KEYS = tuple(_PARSERS)

# Older versions accepted this key although nothing ever used it. Topics that have it keep and show
# it. It can be removed, but no longer set [CONF-2].
_WITHOUT_EFFECT = {"file.delete.delay.ms": "60000"}


_NO_ROLL = "a segment is what one commit wrote, and merge joins small ones"
_NO_REPLICAS = "there are no brokers and no replicas; the object store keeps copies"
_NO_LIMIT = "timestamps are not limited; one that is too far off hurts retention only"
_NO_LEVEL = "the writer chooses the level"
_NO_TIERS = "all data is in the object store"
_NO_INDEX_FILES = "the index is part of the manifest"
_NO_VERSIONS = "there are no older clients to convert records for"

#: Kafka's topic settings that have no meaning here, with the reason.
NO_MEANING = {
    **dict.fromkeys(("segment.ms", "segment.jitter.ms"), _NO_ROLL),
    **dict.fromkeys(("segment.index.bytes", "index.interval.bytes"), _NO_INDEX_FILES),
    "max.message.bytes": "a record may have 512 MiB, and there is no broker to protect",
    **dict.fromkeys(
        (
            "min.insync.replicas",
            "unclean.leader.election.enable",
            "leader.replication.throttled.replicas",
            "follower.replication.throttled.replicas",
        ),
        _NO_REPLICAS,
    ),
    **dict.fromkeys(("flush.messages", "flush.ms"), "a commit is durable when it returns"),
    "preallocate": "files are written as a whole",
    **dict.fromkeys(
        (
            "message.timestamp.before.max.ms",
            "message.timestamp.after.max.ms",
            "message.timestamp.difference.max.ms",
        ),
        _NO_LIMIT,
    ),
    **dict.fromkeys(("message.format.version", "message.downconversion.enable"), _NO_VERSIONS),
    **dict.fromkeys(
        ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"), _NO_LEVEL
    ),
    **dict.fromkeys(
        (
            "remote.storage.enable",
            "local.retention.ms",
            "local.retention.bytes",
            "remote.log.copy.disable",
            "remote.log.delete.on.disable",
        ),
        _NO_TIERS,
    ),
}


def normalize(settings: Mapping[str, object]) -> dict[str, str]:
    """The settings as strings. Raises if a key is unknown, or a value is not allowed [CONF-1]."""
    check_mapping("config", settings, "{'retention.ms': 3600000}")
    check_keys(settings)
    for key in settings:
        if key in _WITHOUT_EFFECT:
            raise InvalidRequestError(
                f"topic config {key} has no effect here and cannot be set: files are deleted by "
                "vacuum, and its retention_ms says how long they stay. Leave the key out"
            )
    normal: dict[str, str] = {}
    for key, value in settings.items():
        if key in _LISTS and isinstance(value, list | tuple | set | frozenset):
            text = ",".join(sorted(str(part) for part in value))
        else:
            text = str(value).strip().lower() if isinstance(value, bool) else str(value).strip()
        _PARSERS[key](key, text)
        normal[key] = text
    parse_config(normal)
    return normal


def check_keys(keys: Iterable[str]) -> None:
    """Raise if a key is not a topic setting, and suggest a similar key."""
    for key in keys:
        if key in NO_MEANING:
            raise InvalidRequestError(
                f"topic config {key} of Kafka has no meaning here: {NO_MEANING[key]}. Leave it out"
            )
        if key not in _PARSERS and key not in _WITHOUT_EFFECT:
            near = difflib.get_close_matches(str(key), _PARSERS, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(_PARSERS)}"
            raise InvalidRequestError(f"unknown topic config {key!r}{hint}")


def parse_config(settings: Mapping[str, str]) -> TopicConfig:
    """The typed values of stored settings, with Kafka's defaults for keys that are not set.

    Keys that this version does not know are ignored: a newer writer may have set them [CONF-2].
    """
    values: dict[str, Any] = {
        key.replace(".", "_"): _PARSERS[key](key, text)
        for key, text in settings.items()
        if key in _PARSERS
    }
    config = TopicConfig(**values)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise InvalidRequestError(
            f"min.compaction.lag.ms {config.min_compaction_lag_ms} is greater than "
            f"max.compaction.lag.ms {config.max_compaction_lag_ms}"
        )
    return config


def stored_config(settings: Mapping[str, str]) -> TopicConfig:
    """The settings of a topic, for whoever obeys them. A value that is not allowed is one of a
    newer writer: only readers ignore it [CONF-3]."""
    try:
        return parse_config(settings)
    except InvalidRequestError as error:
        raise UnsupportedFormatError(
            f"the topic has a setting that this pylogtable does not know, and can only be read: "
            f"{error}. Upgrade pylogtable, or alter the setting."
        ) from None


def compacts(settings: Mapping[str, str]) -> bool:
    """True if the policy contains `compact`: the one setting that readers look at [CONF-3]."""
    return "compact" in _parts(settings.get("cleanup.policy", ""))


def known_formats(settings: Mapping[str, str]) -> list[str]:
    """The table formats that a topic is published in and this version knows, sorted."""
    return sorted(_parts(settings.get("publish.formats", "")) & {*PUBLISH_FORMATS})


def describe_config(settings: Mapping[str, str]) -> dict[str, str]:
    """Every key with the value in force, as text. -1 means no limit, as in Kafka. A value of a
    newer writer is shown as it is stored."""
    try:
        typed = parse_config(settings)
    except InvalidRequestError:
        known = {key: text for key, text in settings.items() if key in _PARSERS}
        return describe_config({}) | known
    shown = {key: settings.get(key, default) for key, default in _WITHOUT_EFFECT.items()}
    for setting in fields(TopicConfig):
        key = setting.name.replace("_", ".")
        value = getattr(typed, setting.name)
        if isinstance(value, frozenset):
            shown[key] = ",".join(sorted(value)) or "none"
        elif isinstance(value, bool):
            shown[key] = str(value).lower()
        else:
            shown[key] = "-1" if value is None else str(value)
    return shown


def _bad(key: str, text: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(f"topic config {key}={text!r}: {why}")
