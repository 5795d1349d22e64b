"""Starts a mirror: opens or creates the copy, and runs until it has all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pylogtable.arguments import check_callable, check_flags, check_mapping
from pylogtable.errors import InvalidRequestError
from pylogtable.format.config import normalize
from pylogtable.format.model import Change, Mirror
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.topic_log import TopicLog
from pylogtable.mirror.copy_and_commit import End
from pylogtable.mirror.copying import Copied, CopyTask, RunTasks, copy_in_threads
from pylogtable.mirror.plan import new_copy
from pylogtable.mirror.report import MirrorProgress, MirrorReport
from pylogtable.mirror.sync import Mirroring, MirrorOptions
from pylogtable.storage.base import ObjectStore

MOST_POLL_SECONDS = 86_400
#: Whether a copy has the records that its source has, or keeps and removes them by its own
#: settings.
RETENTIONS = ("source", "own")


class MirroredTopic(Protocol):
    """A topic, as `Store.topic` gives it."""

    name: str
    _store: ObjectStore
    _log: TopicLog


class MirrorTarget(Protocol):
    """A store, as `pylogtable.open` gives it."""

    @property
    def url(self) -> str: ...

    def _open_copy(
        self, name: str, plan: Callable[[Snapshot | None, str], Change]
    ) -> tuple[MirroredTopic, bool]: ...


def mirror(
    source: MirroredTopic,
    to_store: MirrorTarget,
    *,
    name: str | None = None,
    retention: str | None = None,
    config: Mapping[str, object] | None = None,
    groups: bool = False,
    follow: bool = False,
    allow_gaps: bool = False,
    poll_seconds: float = 1.0,
    on_progress: Callable[[MirrorProgress], object] | None = None,
    stop: Callable[[], bool] | None = None,
    run_tasks: RunTasks[CopyTask, list[Copied]] | None = None,
) -> MirrorReport:
    """See `Topic.mirror`."""
    check_flags(groups=groups, follow=follow, allow_gaps=allow_gaps)
    if not hasattr(to_store, "_open_copy"):
        raise InvalidRequestError(
            f"`to_store` must be a store, such as pylogtable.open('s3://bucket/logs'), not "
            f"{to_store!r}"
        )
    is_number = isinstance(poll_seconds, int | float) and not isinstance(poll_seconds, bool)
    if not is_number or not poll_seconds <= MOST_POLL_SECONDS:
        raise InvalidRequestError(
            f"`poll_seconds` must be a number of seconds, a day at most, not {poll_seconds!r}"
        )
    check_callable("on_progress", on_progress)
    check_callable("stop", stop)
    own = _owns(retention)
    settings: Mapping[str, Any] = {} if config is None else config
    check_mapping("config", settings, "{'retention.ms': -1}")
    if settings and not own:
        raise InvalidRequestError(
            f"`config` ({', '.join(settings)}) is for copies with retention='own': others have the "
            "settings of their source"
        )
    newest = source._log.latest()
    mark = Mirror(source_id=newest.topic_id, source=source._store.url, own_retention=bool(own))

    def create(existing: Snapshot | None, url: str) -> Change:
        return new_copy(existing, newest, mark, settings, url)

    name = source.name if name is None else name
    _check_apart(source._store.url, f"{to_store.url.rstrip('/')}/{name}")
    copy, is_new = to_store._open_copy(name, create)
    if copy._log.known.mirror is not None and not is_new:
        _check_settings(copy, normalize(settings))
    options = MirrorOptions(
        own_retention=own,
        groups=groups,
        follow=follow,
        allow_gaps=allow_gaps,
        poll_seconds=max(0.001, float(poll_seconds)),
        on_progress=on_progress,
        stop=stop or (lambda: False),
    )
    ends = End(source._store, source._log), End(copy._store, copy._log)
    run = Mirroring(*ends, options, run_tasks or copy_in_threads(copy._store), is_new=is_new)
    return run.run(copy.name)


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


def _owns(retention: str | None) -> bool | None:
    if retention is not None and retention not in RETENTIONS:
        raise InvalidRequestError(
            f"`retention` must be 'source' (the copy has the records of its source) or 'own' (it "
            f"keeps and removes records by its own settings), not {retention!r}"
        )
    return None if retention is None else retention == "own"


def _check_settings(copy: MirroredTopic, wanted: Mapping[str, str]) -> None:
    """Raise if a copy that is there already has other settings than those asked for."""
    config = copy._log.known.info.config
    other = {name: value for name, value in wanted.items() if config.get(name) != value}
    if other:
        texts = (f"{name}={config.get(name)}, not {value}" for name, value in other.items())
        raise InvalidRequestError(
            f"`config` is for a new copy, and the one at {copy._store.url} has "
            f"{'; '.join(texts)}. Change it with alter on the copy. A copy that follows its source "
            "has to get retention='own' first, by a mirror without `config`"
        )
