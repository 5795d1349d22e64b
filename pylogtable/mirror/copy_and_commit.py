"""What every step of a mirror does: copy units of the source, and commit them to the copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from pylogtable.errors import LogTableError
from pylogtable.format.config import STALE_AFTER_MS
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Change
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.topic_log import TopicLog
from pylogtable.mirror.copying import Copied, Copier, CopyTask, RunTasks, discard_copies
from pylogtable.mirror.plan import OvertakenError
from pylogtable.mirror.progress import Account
from pylogtable.runtime import Runtime

#: While more than this is copied for one commit, a mirror looks whether it is to stop.
LARGE_BYTES = 1 << 30


class StoppedError(LogTableError):
    """A mirror that copies much is to stop. What it has copied stays for the next one."""


@dataclass(frozen=True)
class Transfer:
    """The way from one topic to the other. `tell` is called after each task, and `stop` is asked
    whether to go on."""

    source: TopicLog
    copy: TopicLog
    account: Account
    run_tasks: RunTasks[CopyTask, list[Copied]]
    tell: Callable[[], None]
    stop: Callable[[], bool]

    @property
    def runtime(self) -> Runtime:
        return self.copy.runtime

    def copied(self, source: Snapshot, copy: Snapshot, tasks: Sequence[CopyTask]) -> list[Copied]:
        """What these tasks have copied, one after the other."""
        # Columns are read as the source has them, and files are written as the copy wants them.
        topic = msgspec.structs.replace(source.info, config=copy.info.config)
        mirror = copy.mirror
        copier = Copier(
            self.source.store,
            self.copy.store,
            topic,
            self.runtime.new_id,
            new_names=mirror is not None and mirror.new_names,
        )
        copied: list[Copied] = []
        is_large = sum(s.size_bytes for task in tasks for s in task.inputs) > LARGE_BYTES

        def add(results: list[Copied]) -> None:
            copied.extend(results)
            self.account.add(results)
            self.tell()
            if is_large and self.stop():
                raise StoppedError("the mirror is to stop")

        try:
            self.run_tasks(copier, tasks, add)
        except StoppedError:
            discard_copies(self.copy.store, copied)
            raise
        return copied

    def commit(
        self,
        plan: Callable[[LogState], Change | None],
        copied: Sequence[Copied],
        began_ms: int,
    ) -> Change:
        """Commit what was copied since `began_ms`. If no commit can name it, it is removed."""

        def plan_in_time(state: LogState) -> Change | None:
            if self.runtime.clock() - began_ms > STALE_AFTER_MS:  # [COMMIT-8]
                raise OvertakenError(
                    "copying took so long that a vacuum may have removed the files"
                )
            return plan(state)

        try:
            _, change = self.copy.change(plan_in_time, refresh=False)
        except LogTableError as error:
            if not error.may_have_landed:
                discard_copies(self.copy.store, copied)
            raise
        self.account.commits += change is not None
        return change or Change(operation="mirror")
