"""Starts a mirror: opens or creates the copy, and runs until it has all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from pylogtable.errors import InvalidRequestError
from pylogtable.format.config import normalize
from pylogtable.format.model import Change, Mirror
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.topic_log import TopicLog
from pylogtable.mirror.copying import Copied, CopyTask, RunTasks, copy_in_threads
from pylogtable.mirror.options import MirrorOptions
from pylogtable.mirror.plan import new_copy
from pylogtable.mirror.report import MirrorReport
from pylogtable.mirror.sync import Mirroring
from pylogtable.storage.base import ObjectStore
from pylogtable.tracing import span


class MirroredTopic(Protocol):
    """A topic, as `Store.topic` gives it."""

    name: str
    _log: TopicLog


class MirrorTarget(Protocol):
    """A store, as `pylogtable.open` gives it."""

    _store: ObjectStore

    @property
    def url(self) -> str: ...

    def _open_copy(
        self, name: str, plan: Callable[[Snapshot | None, str], Change]
    ) -> tuple[MirroredTopic, bool]: ...


def mirror(
    source: MirroredTopic,
    to_store: MirrorTarget,
    options: MirrorOptions,
    run_tasks: RunTasks[CopyTask, list[Copied]] | None = None,
) -> MirrorReport:
    """See `Topic.mirror`."""
    if not hasattr(to_store, "_open_copy"):
        raise InvalidRequestError(
            f"`to_store` must be a store, such as pylogtable.open('s3://bucket/logs'), not "
            f"{to_store!r}"
        )
    name = source.name if options.name is None else options.name
    with span("job", topic=name, job="mirror"):
        return _mirror(source, to_store, name, options, run_tasks)


def _mirror(
    source: MirroredTopic,
    to_store: MirrorTarget,
    name: str,
    options: MirrorOptions,
    run_tasks: RunTasks[CopyTask, list[Copied]] | None,
) -> MirrorReport:
    newest = source._log.latest()
    own = bool(options.own_retention)
    mark = Mirror(source_id=newest.topic_id, source=source._log.store.url, own_retention=own)

    def create(existing: Snapshot | None, url: str) -> Change:
        return new_copy(existing, newest, mark, options.settings, url)

    if source._log.store.endpoint == to_store._store.endpoint:
        _check_apart(source._log.store.url, f"{to_store.url.rstrip('/')}/{name}")
    copy, is_new = to_store._open_copy(name, create)
    if copy._log.known.mirror is not None and not is_new:
        _check_settings(copy, normalize(options.settings))
    logs = source._log, copy._log
    run_tasks = run_tasks or copy_in_threads(copy._log.store)
    return Mirroring(copy.name, *logs, options, run_tasks, is_new=is_new).run()


def _check_apart(source: str, copy: str) -> None:
    """Raise if one of the two would be in the folder of the other: deleting that would delete
    both."""
    if copy == source:
        raise InvalidRequestError(
            f"the topic at {source} cannot be a copy of itself; mirror to another store, or under "
            "another name"
        )
    if copy.startswith(f"{source}/") or source.startswith(f"{copy}/"):
        raise InvalidRequestError(
            f"the topic at {source} cannot have a copy at {copy}: one would be in the folder of "
            "the other. Mirror to another store"
        )


def _check_settings(copy: MirroredTopic, wanted: Mapping[str, str]) -> None:
    """Raise if a copy that is there already has other settings than those asked for."""
    config = copy._log.known.info.config
    other = {name: value for name, value in wanted.items() if config.get(name) != value}
    if other:
        texts = (f"{name}={config.get(name)}, not {value}" for name, value in other.items())
        raise InvalidRequestError(
            f"`config` is for a new copy, and the one at {copy._log.store.url} has "
            f"{'; '.join(texts)}. Change it with alter on the copy. A copy that follows its source "
            "has to get retention='own' first, by a mirror without `config`"
        )
