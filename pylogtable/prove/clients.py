"""The clients of a proof: processes that use a topic, and record what they were told, by role."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from pylogtable.prove.client import Assignment, Client
from pylogtable.prove.history import JOB
from pylogtable.prove.readers import LoneConsumer, Member, Reader
from pylogtable.prove.writers import Appender, FileAppender, Sender, TxnAppender, TxnSender


def serve(assignment: Assignment) -> None:
    """Run a client until its time is over. It is the body of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with (assignment.folder / f"{assignment.process}.err").open("wb", buffering=0) as errors:
        os.dup2(errors.fileno(), sys.stderr.fileno())
    client = ROLES[assignment.role](assignment)
    client.run()


class Maintenance(Client):
    """Merges, and removes files that nobody needs. Nothing expires, so that nothing may vanish."""

    def step(self) -> None:
        if self.chance() < 0.7:
            with self.operation(JOB, name="merge"):
                self.topic.merge(threads=1)
        else:
            with self.operation(JOB, name="vacuum"):
                self.topic.vacuum(dry_run=False)


ROLES: dict[str, Callable[[Assignment], Client]] = {
    "append": Appender,
    "append-txn": TxnAppender,
    "append-files": FileAppender,
    "producer": Sender,
    "producer-txn": TxnSender,
    "reader": Reader,
    "member": Member,
    "consumer": LoneConsumer,
    "maintenance": Maintenance,
}
#: Roles that append, in the order in which they are given out.
APPENDING = ("append", "producer-txn", "append-txn", "producer", "append-files")
#: How long each waits between two operations, at most. Readers need not be faster than people.
PAUSE_SECONDS = {"reader": 0.2, "maintenance": 3.0}
#: Leases depend on clocks that agree, so members have the right time.
NEVER_SKEWED = ("member", "consumer")
