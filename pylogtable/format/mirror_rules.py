"""Copies of topics: what a commit says about the source of a copy. Pure.

A copy knows its source from its creation on. Every commit that brings records of the source says
so. A commit that appends other records, or has a txn of another writer, ends that: from then on the
copy is a topic like any other, and nobody takes its records for those of the source [MIR-2].
"""

from __future__ import annotations

import msgspec

from pylogtable.errors import InvalidRequestError
from pylogtable.format.field_ids import Fault
from pylogtable.format.model import MIRROR, Commit, Mirror, Protocol


def mirror_fault(before: Mirror | None, commit: Commit, protocol: Protocol) -> Fault | None:
    """The rule that a commit breaks by what it says about a source; None if it breaks none.
    `protocol` is the one in force."""
    new = commit.mirror
    if new is None:
        if commit.mirrored_txns:
            return Fault("MIR-3", "it has txns of a source, and no mirror")
        return None
    if not protocol.announces(MIRROR):
        return Fault("MIR-1", f"it has a mirror, and the protocol does not name {MIRROR}")
    if new.version is not None and new.seen is not None and new.seen < new.version:
        detail = f"it shows version {new.version} of the source, and has seen {new.seen}"
        return Fault("MIR-1", detail)
    if new.ended not in {None, commit.version}:
        return Fault("MIR-2", f"it says that the mirroring ended in version {new.ended}")
    if commit.operation == "create":
        return None
    if len({txn.app_id for txn in commit.txns}) < len(commit.txns):
        return Fault("MIR-3", "it has two txns of one app id")
    if before is None or before.source_id != new.source_id:
        source = "no copy" if before is None else f"a copy of {before.source_id!r}"
        return Fault("MIR-1", f"it brings records of {new.source_id!r}, and the topic is {source}")
    if before.ended is not None:
        return Fault("MIR-2", f"the mirroring has ended in version {before.ended}")
    if before.version is not None and (new.version is None or new.version < before.version):
        detail = f"it goes back from version {before.version} of the source to {new.version}"
        return Fault("MIR-1", detail)
    seen, known = new.seen_version, before.seen_version
    if known is not None and (seen is None or seen < known):
        detail = f"it has seen version {known} of the source, and goes back to {seen}"
        return Fault("MIR-1", detail)
    if before.own_retention and not new.own_retention:
        return Fault("MIR-4", "a copy with its own retention cannot follow its source again")
    if before.new_names and not new.new_names:
        return Fault("MIR-7", "a copy whose files have new names goes on with that")
    return None


def mirror_after(before: Mirror | None, commit: Commit) -> Mirror | None:
    """What is known about the source after a commit that breaks no rule."""
    if commit.mirror is not None:
        return commit.mirror
    is_foreign = bool(commit.ends or commit.appends) or commit.txn is not None
    if before is not None and before.ended is None and is_foreign:  # [MIR-2]
        return msgspec.structs.replace(before, ended=commit.version)
    return before


def check_may_remove(mirror: Mirror | None, operation: str) -> None:
    """Raise if only the source may remove records of this topic [MIR-4]."""
    if mirror is not None and mirror.is_following:
        raise InvalidRequestError(
            f"{operation} is refused: this topic is a copy of {source_text(mirror)}, and has the "
            f"records that its source has. Run {operation} on the source; the next mirror brings "
            "the result. To let the copy keep and remove records by its own settings, mirror with "
            "retention='own' (--retention own). After a failover, call promote() first (pylogtable "
            "topics promote)"
        )


def check_may_append(mirror: Mirror | None) -> None:
    """Raise if this topic is a copy that is in the middle of a mirror [MIR-3]. It has records whose
    txns it does not have yet, so an append that is repeated here would not be recognised."""
    if mirror is not None and mirror.is_unfinished:
        raise InvalidRequestError(
            f"append is refused: this topic is a copy of {source_text(mirror)}, in the middle of a "
            "mirror. It does not know yet what writers have appended at the source, so a repeated "
            "append would come twice. Let the mirror finish first. If the source is lost, call "
            "promote(force=True) (pylogtable topics promote --force), and find out what writers "
            "have to repeat"
        )


def check_may_alter(mirror: Mirror | None, *, only_settings: bool) -> None:
    """Raise if only the source may alter this topic [MIR-5]."""
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
