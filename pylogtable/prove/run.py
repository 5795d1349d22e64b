"""Runs a proof: makes a topic in a folder of its own, lets clients and faults loose on it, and
checks what they recorded."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pylogtable.errors import CorruptTopicError, InvalidRequestError, LogTableError
from pylogtable.prove.checker import DEADLINE_SECONDS, check
from pylogtable.prove.client import PARTITIONS, TOPIC, Assignment
from pylogtable.prove.clients import APPENDING, PAUSE_SECONDS, serve
from pylogtable.prove.crew import KILLS, PAUSES, SKEW, Crew
from pylogtable.prove.history import SUFFIX, Contents, History, Run, read_operations
from pylogtable.prove.proxy import Proxy, endpoint_in, redirected
from pylogtable.prove.readers import COLUMNS, runs_in
from pylogtable.prove.report import Evidence, ProveReport, rows_of, timeline_of
from pylogtable.prove.writers import INLINE_BYTES
from pylogtable.runtime import TIMEOUT_OPTION, Runtime, seeded_chance
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.local import LocalStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.storage.open import open_store
from pylogtable.store import open as open_topics

REPLIES = "replies"
#: What users call the kinds of faults.
FAULTS = {"kills": KILLS, "pauses": PAUSES, "skew": SKEW, "replies": REPLIES}

DEFAULT_MINUTES = 5.0
DEFAULT_PROCESSES = 8
MAX_PROCESSES = 256
#: How long clients wait for a store that does not answer, unless the user says it.
PATIENCE_SECONDS = 30.0

_TICK_SECONDS = 0.05
_PROGRESS_SECONDS = 0.5
#: How long clients have to end after Ctrl-C.
_HURRY_SECONDS = 10.0


#: Called now and then: seconds so far, operations that have ended, faults of processes.
Progress = Callable[[float, int, int], None]


@dataclass(frozen=True)
class ProveOptions:
    """How a proof is run. `processes` is the number of those that append; others read, consume and
    maintain. `serve` is the body of a client process."""

    minutes: float = DEFAULT_MINUTES
    processes: int = DEFAULT_PROCESSES
    seed: int | None = None
    faults: tuple[str, ...] = tuple(FAULTS)
    keep: bool = False
    serve: Callable[[Assignment], None] = serve


def prove(
    url: str | os.PathLike[str],
    options: ProveOptions | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    on_progress: Progress | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> ProveReport:
    """Try whether the store at this address keeps what topics promise, under faults.

    It works in a folder of its own, which it removes, unless there were anomalies or
    `options.keep` is true. Once `stop()` is true, it ends with a report over what was done.
    """
    chosen = options or ProveOptions()
    _check_options(chosen)
    runtime = Runtime()
    store = open_store(url, storage_options)
    _check_place(store)
    folder = f"_prove-{runtime.new_id()[:12]}"
    return _Proof(store, folder, chosen, dict(storage_options or {}), runtime).run(
        on_progress or (lambda *_: None), stop
    )


def _check_options(options: ProveOptions) -> None:
    if not 0 < options.minutes <= 7 * 24 * 60:
        raise InvalidRequestError(
            f"minutes must be above 0, and at most a week, not {options.minutes:g}"
        )
    if not 1 <= options.processes <= MAX_PROCESSES:
        raise InvalidRequestError(
            f"processes must be from 1 to {MAX_PROCESSES}, not {options.processes}"
        )
    for fault in options.faults:
        if fault not in FAULTS:
            raise InvalidRequestError(
                f"there are no faults {fault!r}; the kinds are {', '.join(FAULTS)}"
            )


def _check_place(store: ObjectStore) -> None:
    if isinstance(store, MemoryStore):
        raise InvalidRequestError(
            f"{store.url} lives in one process, and a proof needs many: use a directory or a bucket"
        )
    if isinstance(store, LocalStore) and not os.path.isdir(path_of(store)):
        raise InvalidRequestError(
            f"there is no directory {path_of(store)}: check the address, or make the directory"
        )


def path_of(store: ObjectStore) -> str:
    """The path of a store on a disk."""
    return store.url.removeprefix("file://")


class _Proof:
    def __init__(
        self,
        store: ObjectStore,
        folder: str,
        options: ProveOptions,
        storage_options: dict[str, Any],
        runtime: Runtime,
    ) -> None:
        self._store = store
        self._folder = folder
        self._options = options
        self._storage_options = storage_options
        self._runtime = runtime
        self._seed = (
            options.seed if options.seed is not None else int(runtime.chance() * 1_000_000_000)
        )

    @property
    def _url(self) -> str:
        return self._store.below(self._folder).url

    def run(self, on_progress: Progress, stop: Callable[[], bool]) -> ProveReport:
        recorded = Path(tempfile.mkdtemp(prefix="pylogtable-prove-"))
        is_kept = self._options.keep
        try:
            topics = open_topics(self._url, storage_options=self._storage_options)
            topics.create_topic(
                TOPIC,
                PARTITIONS,
                {"sender": "string", "number": "bigint", "pad": "binary"},
                config={"retention.ms": -1, "inline.max.bytes": INLINE_BYTES},
            )
            report = self._run(recorded, on_progress, stop)
            is_kept = is_kept or not report
            return report
        finally:
            if not is_kept:
                shutil.rmtree(recorded, ignore_errors=True)
                self._remove()

    def _run(self, recorded: Path, on_progress: Progress, stop: Callable[[], bool]) -> ProveReport:
        began = self._runtime.monotonic()
        proxy = self._proxy()
        try:
            crew, stuck = self._work(recorded, proxy, on_progress, stop)
        finally:
            if proxy is not None:
                proxy.close()
        seconds = self._runtime.monotonic() - began
        has_stopped = stop()
        paused = {process: tuple(spans) for process, spans in crew.paused.items()}
        history = History(read_operations(recorded), paused, frozenset() if has_stopped else stuck)
        contents = self._contents()
        anomalies = check(history, contents)
        if has_stopped:
            # Whoever ends a proof at once knows that it proves nothing.
            anomalies = [anomaly for anomaly in anomalies if anomaly.name != "no-progress"]
        operations = rows_of(history.operations)
        faults = crew.met + (history.faults() if proxy is None else proxy.met)
        requests = sum(row.requests for row in operations) if proxy is None else proxy.requests
        is_kept = self._options.keep or bool(anomalies)
        return ProveReport(
            url=self._store.url,
            seconds=round(seconds, 3),
            seed=self._seed,
            processes=self._options.processes,
            records=sum(run.records for run in contents.runs),
            operations=operations,
            faults=dict(sorted(faults.items())),
            faults_by="below the library" if proxy is None else "a proxy before the endpoint",
            requests=requests,
            anomalies=tuple(anomalies),
            timeline=timeline_of(history.operations, crew.struck, began, seconds),
            ended_early=has_stopped,
            evidence=Evidence(str(recorded), self._url) if is_kept else None,
        )

    def _proxy(self) -> Proxy | None:
        """A proxy that loses replies, if the store can be reached through one."""
        endpoint = endpoint_in(self._storage_options)
        is_s3 = self._store.url.startswith("s3://")
        if not is_s3 or endpoint is None or REPLIES not in self._options.faults:
            return None
        return Proxy(endpoint, seeded_chance(f"{self._seed} proxy"), self._runtime)

    def _work(
        self,
        recorded: Path,
        proxy: Proxy | None,
        on_progress: Progress,
        stop: Callable[[], bool],
    ) -> tuple[Crew, frozenset[str]]:
        """Let the clients work until the time is over. Returns them, and those that hung."""
        runtime = self._runtime
        kinds = frozenset(FAULTS[fault] for fault in self._options.faults)
        crew = Crew(self._options.serve, kinds, f"{self._seed}", runtime)
        duration = self._options.minutes * 60
        # Clients end by themselves if this process is gone.
        latest = runtime.monotonic() + duration + 2 * DEADLINE_SECONDS
        assignments = list(self._assignments(recorded, latest, proxy))
        watch = _Watch(recorded)
        try:
            for assignment in assignments:
                crew.start(assignment)
            began = self._wait_for(lambda: len(watch.look().ready) >= len(assignments), stop)
            told_at = began
            while (now := runtime.monotonic()) < began + duration and not stop():
                crew.tick(watch.ready)
                if now - told_at >= _PROGRESS_SECONDS:
                    told_at = now
                    on_progress(now - began, watch.look().ended, crew.met.total())
                runtime.pause(_TICK_SECONDS)
            # On a slow machine or store, a short proof has to get something done as well.
            self._wait_for(lambda: watch.look().acknowledged > 0, stop)
            (recorded / "stop").touch()
            return crew, crew.end(_HURRY_SECONDS if stop() else DEADLINE_SECONDS)
        finally:
            crew.kill()

    def _wait_for(self, is_there: Callable[[], bool], stop: Callable[[], bool]) -> float:
        """Wait until something is there, or the deadline has passed. Returns the time."""
        give_up = self._runtime.monotonic() + DEADLINE_SECONDS
        while not (is_there() or stop() or self._runtime.monotonic() > give_up):
            self._runtime.pause(_TICK_SECONDS)
        return self._runtime.monotonic()

    def _assignments(
        self, recorded: Path, until: float, proxy: Proxy | None
    ) -> Iterable[Assignment]:
        appending = [APPENDING[at % len(APPENDING)] for at in range(self._options.processes)]
        others = ["reader", "member", "member", "member", "consumer", "maintenance"]
        counts: Counter[str] = Counter()
        storage_options = {TIMEOUT_OPTION: PATIENCE_SECONDS, **self._storage_options}
        if proxy is not None:
            storage_options = redirected(storage_options, proxy.url)
        for role in [*appending, *others]:
            name = f"{role}-{counts[role]}"
            counts[role] += 1
            yield Assignment(
                name=name,
                start=0,
                role=role,
                url=self._url,
                storage_options=storage_options,
                folder=recorded,
                seed=f"{self._seed} {name}",
                until=until,
                has_faults=REPLIES in self._options.faults and proxy is None,
                pause_seconds=PAUSE_SECONDS.get(role, 0.0),
            )

    def _contents(self) -> Contents:
        """The topic as it is now, with a verification of every record."""
        try:
            topic = open_topics(self._url, storage_options=self._storage_options).topic(TOPIC)
            runs: list[Run] = []
            for number in range(PARTITIONS):
                runs += runs_in(topic.read(partition=number, columns=COLUMNS).read_all())
            positions = {name: topic.group(name).positions() for name in topic.groups()}
            problems = tuple(str(problem) for problem in topic.verify(data=True).problems)
            return Contents(tuple(runs), topic.end_offsets(), positions, problems)
        except CorruptTopicError as error:
            return Contents((), {}, problems=(str(error),), is_broken=True)

    def _remove(self) -> None:
        """Remove the topic, if the store allows it."""
        store = self._store.below(self._folder)
        with suppress(LogTableError):
            for info in list(store.list()):
                store.delete(info.key)
            for info in list(store.leftovers()):
                store.remove_leftover(info.key)
        self._store.remove_empty_folders(f"{self._folder}/")


class _Watch:
    """Counts what clients write while they write it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        #: The processes that have ended their first operation, which opens the topic.
        self.ready: set[str] = set()
        self.ended = 0
        self.acknowledged = 0

    def look(self) -> _Watch:
        """Read what is new."""
        for path in self._folder.glob(f"*{SUFFIX}"):
            before = self._read.get(path, 0)
            with path.open("rb") as file:
                file.seek(before)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = before + len(whole)
            ended = whole.count(b'{"end":')
            self.ended += ended
            if ended:
                self.ready.add(path.stem)
            self.acknowledged += whole.count(b'"offsets":')
        return self
