"""Real histories for the tests of the checker: clients of a proof take turns in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pylogtable
from pylogtable.prove.client import PARTITIONS, TOPIC, Assignment
from pylogtable.prove.clients import ROLES
from pylogtable.prove.history import Contents, History, read_operations
from pylogtable.prove.readers import COLUMNS, runs_in
from pylogtable.prove.writers import INLINE_BYTES

WHO = ["append", "append-txn", "append-files", "producer", "producer-txn"]
READERS = ["reader", "member", "member", "member", "consumer", "maintenance"]


def record(
    folder: Path, rounds: int, roles: Sequence[str] = (*WHO, *READERS), *, faults: bool = False
) -> tuple[History, Contents]:
    """Each client does a step in each round. No process is killed."""
    url = str(folder / "store")
    store = pylogtable.open(url)
    config = {"retention.ms": -1, "inline.max.bytes": INLINE_BYTES}
    columns = {"sender": "string", "number": "bigint", "pad": "binary"}
    topic = store.create_topic(TOPIC, PARTITIONS, columns, config=config)
    clients = []
    for at, role in enumerate(roles):
        name = f"{role}-{at}"
        assignment = Assignment(name, 0, role, url, None, folder, name, 0.0, has_faults=faults)
        client = ROLES[role](assignment)
        client.topic = client.open()
        clients.append(client)
    for _ in range(rounds):
        for client in clients:
            client.step()
    for client in clients:
        client.close()
        client.faults.settle()
        client.recorder.close()
    runs = runs_in(topic.read(columns=COLUMNS).read_all())
    positions = {name: topic.group(name).positions() for name in topic.groups()}
    contents = Contents(tuple(runs), topic.end_offsets(), positions)
    return History(read_operations(folder)), contents
