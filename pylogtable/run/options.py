"""What a loop over a store can be asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from pylogtable.arguments import check_callable, check_flags, check_number
from pylogtable.errors import InvalidRequestError
from pylogtable.maintain import MAINTENANCE_JOBS, check_jobs
from pylogtable.run.job_run import JobRun
from pylogtable.run.kafka_imports import KafkaImports
from pylogtable.store import Store

#: The jobs of a loop, in the order they run.
JOB_NAMES = (*MAINTENANCE_JOBS, "mirror")


@dataclass(frozen=True)
class RunOptions:
    """The options of `run`, checked. Without `topics`, all topics are looked after, new ones too.
    `every_seconds` is the time between two looks at a topic; a published topic is looked at more
    often if its `publish.max.lag.ms` needs that."""

    topics: Sequence[str] | None = None
    jobs: Sequence[str] | None = None
    every_seconds: float = 1.0
    protect_groups: Sequence[str] = ()
    threads: int = 2
    mirror_to: Store | None = None
    mirror_groups: bool = False
    imports: KafkaImports | None = None
    on_job: Callable[[JobRun], object] | None = None

    def __post_init__(self) -> None:
        check_number("threads", self.threads, least=1)
        check_flags(mirror_groups=self.mirror_groups)
        check_callable("on_job", self.on_job)
        every = self.every_seconds
        is_number = isinstance(every, int | float) and not isinstance(every, bool)
        if not is_number or not 0.01 <= every <= 86_400:
            raise InvalidRequestError(
                f"`every_seconds`, or --every, must be from 0.01 seconds to a day, not {every!r}"
            )
        check_jobs(self.jobs, JOB_NAMES)
        if self.jobs is not None and "mirror" in self.jobs and self.mirror_to is None:
            raise InvalidRequestError(
                "the job 'mirror' needs a store to mirror to: `mirror_to`, or --mirror-to"
            )

    @property
    def task(self) -> str:
        """A short name for what is asked for. Processes with the same task share the topics; a
        topic must not go to one that does not look after it, or does not do all of its jobs."""
        mirror = self.mirror_to and (self.mirror_to.url, self.mirror_groups)
        imports = self.imports and (self.imports.bootstrap_servers, sorted(self.imports.topics))
        topics = None if self.topics is None else sorted(self.topics)
        asked = (topics, self.wanted, mirror, imports)
        return sha256(repr(asked).encode()).hexdigest()[:8]

    @property
    def wanted(self) -> tuple[str, ...]:
        """The jobs to run, in their order."""
        chosen = JOB_NAMES if self.jobs is None else self.jobs
        return tuple(
            job for job in JOB_NAMES if job in chosen and (job != "mirror" or self.mirror_to)
        )
