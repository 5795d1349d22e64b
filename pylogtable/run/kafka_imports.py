"""The topics of Kafka that a loop imports: a thread for each, which follows Kafka's topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pylogtable.arguments import check_callable
from pylogtable.kafka.client import kafka_library
from pylogtable.kafka.import_many import import_share
from pylogtable.kafka.import_report import ImportProgress, ImportReport
from pylogtable.kafka.side_by_side import Ended, Share, SideBySide
from pylogtable.run.job_run import JobRun
from pylogtable.run.members import Members
from pylogtable.store import Store


@dataclass(frozen=True)
class KafkaImports:
    """Topics of a Kafka cluster to import, under the same names, until the loop ends.

    `progress_of` is called with the topic each time an import begins, and returns what gets its
    progress, or None."""

    bootstrap_servers: str
    topics: Sequence[str]
    consumer_settings: Mapping[str, Any] = field(default_factory=dict)
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
        rest_seconds = store._store.limits.kafka_look_seconds
        self._imports = SideBySide(
            self._import, store._runtime, follows=True, rest_seconds=rest_seconds, name="import"
        )

    def tick(self) -> None:
        """Begin the imports that do not run and should."""
        topics = () if self._asked is None else self._asked.topics
        self._tell_of(self._imports.ended())
        self._imports.begin(topic for topic in topics if self._members.owns(topic))

    def close(self) -> None:
        """Wait until all have ended. They do so after the running commit."""
        self._tell_of(self._imports.wait())

    def _import(self, topic: str, share: Share) -> ImportReport:
        assert self._asked is not None
        return import_share(
            self._store,
            topic,
            share,
            bootstrap_servers=self._asked.bootstrap_servers,
            follow=True,
            consumer_settings=self._asked.consumer_settings,
            on_progress=self._asked.progress_of(topic),
            stop=lambda: self._is_stopped() or not self._members.owns(topic) or share.is_outdated(),
        )

    def _tell_of(self, ended: Iterable[Ended[ImportReport]]) -> None:
        for one in ended:
            self._tell(
                JobRun(one.topic, "import", one.began_ms, one.seconds, one.report, one.error)
            )
