"""What a copy of another topic refuses while it follows its source. Pure."""

from __future__ import annotations

from pylogtable.errors import InvalidRequestError
from pylogtable.format.model import Mirror
from pylogtable.format.snapshot import Snapshot


def check_may_remove(snapshot: Snapshot, operation: str) -> None:
    """Raise if only the source may remove records of this topic [MIR-4]."""
    mirror = snapshot.mirror
    if mirror is not None and mirror.is_following:
        raise InvalidRequestError(
            f"{operation} is refused: this topic is a copy of {source_text(mirror)}, and has the "
            f"records that its source has. Run {operation} on the source; the next mirror brings "
            "the result. To let the copy keep and remove records by its own settings, mirror with "
            "retention='own' (--retention own). After a failover, call promote() first (pylogtable "
            "topics promote)"
        )


def check_may_append(snapshot: Snapshot) -> None:
    """Raise if this topic is a copy that is in the middle of a mirror [MIR-3]. It has records whose
    txns it does not have yet, so an append that is repeated here would not be recognised."""
    mirror = snapshot.mirror
    if mirror is not None and mirror.is_unfinished:
        raise InvalidRequestError(
            f"append is refused: this topic is a copy of {source_text(mirror)}, in the middle of a "
            "mirror. It does not know yet what writers have appended at the source, so a repeated "
            "append would come twice. Let the mirror finish first. If the source is lost, call "
            "promote(force=True) (pylogtable topics promote --force), and find out what writers "
            "have to repeat"
        )


def check_may_alter(snapshot: Snapshot, *, only_settings: bool) -> None:
    """Raise if only the source may alter this topic [MIR-5]."""
    mirror = snapshot.mirror
    if mirror is None or mirror.ended is not None or (mirror.own_retention and only_settings):
        return
    what = "partitions and columns" if mirror.own_retention else "partitions, columns and settings"
    raise InvalidRequestError(
        f"alter is refused: this topic is a copy of {source_text(mirror)}, which decides its "
        f"{what}. Alter the source; the next mirror brings the change. After a failover, call "
        "promote() first (pylogtable topics promote)"
    )


def source_text(mirror: Mirror) -> str:
    """The source of a copy, for messages."""
    return f"{mirror.source} (topic id {mirror.source_id})" if mirror.source else mirror.source_id
