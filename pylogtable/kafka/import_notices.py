"""What an import warns of. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pylogtable.kafka.import_plan import settings_not_in_force


def unused_settings(
    name: str, asked: Mapping[str, object], in_force: Mapping[str, str]
) -> list[str]:
    """Settings count for a new topic only: those that an existing one does not follow."""
    return [
        f"--config {setting}={value} is not used: topic {name!r} exists, and keeps "
        f"{setting}={in_force[setting]}. To change it: pylogtable topics alter {name} "
        f"--config {setting}={value}"
        for setting, value in settings_not_in_force(asked, in_force).items()
    ]


def unused_timestamp(name: str) -> str:
    """So does the time to begin at."""
    return (
        f"--from-timestamp is not used: topic {name!r} has been imported before, and "
        "goes on where it ends. To begin at another time, import under another --name"
    )


def transaction_is_open(waiting: Mapping[int, int]) -> str:
    """A bounded import leaves so many offsets of each partition behind."""
    places = ", ".join(f"{count:,} of partition {n}" for n, count in waiting.items())
    return (
        "a transaction is open in Kafka. The offsets from its first record on are not "
        f"imported now: {places}. Import again when it has ended, or use --follow "
        "(follow=True)"
    )


def not_guarded(name: str) -> str:
    """A copy of an earlier release is not guarded by itself: that release may be using it."""
    return (
        f"topic {name!r} is a copy that an earlier release has made, and nothing keeps "
        "other programs from appending to it: one record of theirs ends the import for good. "
        "To guard it, import with --guard (guard=True); earlier releases of pylogtable can no "
        "longer write to it then"
    )
