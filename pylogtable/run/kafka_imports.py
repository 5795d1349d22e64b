"""The topics of Kafka that a loop imports: a thread for each, which follows Kafka's topic."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pylogtable.arguments import check_callable
from pylogtable.errors import LogTableError
from pylogtable.kafka.client import kafka_library
from pylogtable.kafka.import_report import ImportProgress
from pylogtable.kafka.import_start import import_topic
from pylogtable.run.job_run import JobRun
from pylogtable.run.members import Members
from pylogtable.store import Store
from pylogtable.times import is_within

_logger = logging.getLogger(__name__)

#: An import that has ended, for whatever reason, is begun again after this time.
AGAIN_MS = 30_000


@dataclass(frozen=True)
class KafkaImports:
    """Topics of a Kafka cluster to import, under the same names, until the loop ends.

    `progress_of` is called with the topic each time an import begins, and returns what gets its
    progress, or None."""

    bootstrap_servers: str
    topics: Sequence[str]
    consumer_settings: Mapping[str, Any] = field(default_factory=dict)
    groups: bool = False
    progress_of: Callable[[str], Callable[[ImportProgress], object] | None] = lambda topic: None

    def __post_init__(self) -> None:
        check_callable("progress_of", self.progress_of)
        kafka_library()  # raises if it is missing: no later try would find it


class RunningImports:
    """The imports that this process runs: those of the topics that it owns."""

    def __init__(
        self,
        store: Store,
        asked: KafkaImports | None,
        members: Members,
        is_stopped: Callable[[], bool],
        tell: Callable[[JobRun], None],
    ) -> None:
        self._store = store
        self._asked = asked
        self._members = members
        self._is_stopped = is_stopped
        self._tell = tell
        self._threads: dict[str, threading.Thread] = {}
        self._ended_ms: dict[str, int] = {}

    def tick(self) -> None:
        """Begin the imports that do not run and should."""
        now_ms = self._store._runtime.clock()
        for topic in () if self._asked is None else self._asked.topics:
            thread = self._threads.get(topic)
            is_running = thread is not None and thread.is_alive()
            rests = is_within(self._ended_ms.get(topic), now_ms, AGAIN_MS)
            if not is_running and not rests and self._members.owns(topic):
                thread = threading.Thread(
                    target=self._import, args=(topic,), name=f"import {topic}"
                )
                self._threads[topic] = thread
                thread.start()

    def close(self) -> None:
        """Wait until all have ended. They do so after the running commit."""
        for thread in self._threads.values():
            thread.join()

    def _import(self, topic: str) -> None:
        assert self._asked is not None
        runtime = self._store._runtime
        began_ms, began = runtime.clock(), runtime.monotonic()
        report, error = None, None
        try:
            report = import_topic(
                self._store,
                topic,
                bootstrap_servers=self._asked.bootstrap_servers,
                follow=True,
                groups=self._asked.groups,
                consumer_settings=self._asked.consumer_settings,
                on_progress=self._asked.progress_of(topic),
                stop=lambda: self._is_stopped() or not self._members.owns(topic),
            )
        except LogTableError as raised:
            error = raised
        except Exception as raised:
            _logger.exception("the import of topic %r ended early", topic)
            error = LogTableError(f"{type(raised).__name__}: {raised}")
        self._ended_ms[topic] = runtime.clock()
        self._tell(JobRun(topic, "import", began_ms, runtime.monotonic() - began, report, error))
