"""The first commit of a topic, on a store that has to prove that it does not overwrite."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pylogtable.errors import InvalidRequestError, StorageError, UnsupportedFormatError
from pylogtable.format.json_codec import encode
from pylogtable.format.model import Change, Commit
from pylogtable.format.paths import commit_path
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.commit_loop import change_until_landed
from pylogtable.log.manifest import Manifest
from pylogtable.log.topic_log import attempt_commit
from pylogtable.runtime import Runtime
from pylogtable.storage.base import Created, ObjectStore

_logger = logging.getLogger(__name__)

# How often an id is drawn again that is in use.
_ID_TRIES = 10


def create_log(
    store: ObjectStore, runtime: Runtime, plan: Callable[[Snapshot | None, str], Change]
) -> None:
    """Create the topic in this folder. `plan` gets what is there, perhaps a deleted topic, and the
    address."""
    manifest = Manifest(store)

    def attempt(snapshot: Snapshot | None) -> tuple[Commit, Snapshot] | None:
        change = plan(snapshot, store.url)
        topic_id, commit_id = _unused_topic_id(snapshot, runtime.new_id), runtime.new_id()
        return attempt_commit(manifest, runtime, snapshot, change, commit_id, topic_id)

    commit, _ = change_until_landed(manifest.load(), attempt, manifest.load, runtime)
    _refuse_overwriting(store, manifest, commit)
    if commit.version == 0:
        manifest.write_hint(None)


def _refuse_overwriting(store: ObjectStore, manifest: Manifest, commit: Commit) -> None:
    """Raise if the store overwrites: it must refuse to create the same commit twice [STORE-2]. The
    topic is there, so a store that fails now does not make its creation fail."""
    try:
        created = manifest.commits.create(commit.version, encode(commit))
    except StorageError as error:
        _logger.warning("put-if-absent of %s was not tried: %s", store.url, error)
        return
    if created is Created.YES:
        store.delete(commit_path(commit.version))
        raise UnsupportedFormatError(
            f"{store.url} does not support put-if-absent: it overwrote an object. Appends of "
            "concurrent writers would be lost. Use a store that honours conditional puts."
        )


def _unused_topic_id(deleted: Snapshot | None, new_id: Callable[[], str]) -> str:
    """An id that the topic before this one did not have [META-5]."""
    for _ in range(_ID_TRIES):
        topic_id = new_id()
        if deleted is None or topic_id != deleted.topic_id:
            return topic_id
    raise InvalidRequestError(
        f"every new id is {topic_id!r}, which is the id of the deleted topic: the source of ids "
        "repeats itself. Nothing was created"
    )
