"""Every kind of commit, with a fault on the wire when it is put, and refusals after that.

The put may have landed, or lands later. The answers after it are refusals. None of them says what
became of the put, so nothing that it names may be removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pylogtable.errors import CommitUnknownError, LogTableError, StorageError
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.remote import RemoteStore
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.builders import kafka
from tests.faults.support import FakeTime
from tests.proxy import Proxy, Refusal, WireFault
from tests.storage.wire import REFUSALS, TAKEN, UNCLEAR

#: What a put-if-absent of this format has for a name.
NUMBERED = re.compile(r"/(_manifest|_groups/[^/]+|_delta_log)/\d{20}\.json")
ANSWERS = (*REFUSALS, *UNCLEAR, TAKEN)
FIRST = (WireFault.LOSE_REPLY, WireFault.DELAY, WireFault.DROP)
PATIENCE_SECONDS = 5.0

Rows = list[tuple[object, ...]]


@dataclass(frozen=True)
class Case:
    """A job, and what it does to the records: None if they stay."""

    run: Callable[[Store], object]
    adds: int = 0
    removes: bool = False
    is_inline: bool = False


def _append(store: Store, **more: object) -> None:
    store.topic("t").append(kafka(["new"] * 3, ["v"] * 3), **more)


def _produce(store: Store) -> None:
    with store.topic("t").producer(app_id="p") as producer:
        for _ in range(3):
            producer.send(key=b"new", value=b"v")


def _mirror(store: Store) -> None:
    store.topic("t").mirror(store, name="copy")


def _commit_positions(store: Store) -> None:
    store.topic("t").group("g").commit({0: 2})


CASES: Mapping[str, Case] = {
    "append in a commit": Case(_append, adds=3, is_inline=True),
    "append of files": Case(_append, adds=3),
    "append with txn": Case(lambda store: _append(store, txn=("app", 1)), adds=3),
    "producer": Case(_produce, adds=3),
    "merge": Case(lambda store: store.topic("t").merge()),
    "compaction": Case(lambda store: store.topic("t").compact(force=True), removes=True),
    "erase": Case(lambda store: store.topic("t").erase(keys=[b"a"]), removes=True),
    "delete_records": Case(lambda store: store.topic("t").delete_records({0: 2}), removes=True),
    "alter": Case(lambda store: store.topic("t").alter(config={"retention.ms": -1})),
    "create": Case(lambda store: store.create_topic("other")),
    "group": Case(_commit_positions),
    "publish": Case(lambda store: store.topic("t").publish(["delta"])),
    "mirror": Case(_mirror),
}


def rows_of(store: Store, name: str) -> Rows:
    table = store.topic(name).read().read_all().drop_columns(["timestamp"])
    return [tuple(row.values()) for row in table.to_pylist()]


def new_store(objects: ObjectStore) -> Store:
    """Doubts last as long as the patience of a time that moves only while somebody waits."""
    return Store(objects, replace(FakeTime().runtime(), clock=Runtime().clock))


def set_up(direct: ObjectStore, case: Case) -> Topic:
    config = {
        "cleanup.policy": "compact,delete",
        "inline.max.bytes": 16_384 if case.is_inline else 0,
    }
    topic = new_store(direct).create_topic("t", config=config)
    for value in "12":
        topic.append(kafka(["a", "b"], [value, value]))
    return topic


def check_pair(
    proxy: Proxy,
    far: RemoteStore,
    direct: ObjectStore,
    case: Case,
    first: WireFault,
    then: Refusal,
    *,
    late_at_once: bool = False,
) -> None:
    """The first put of a numbered object meets `first`, and all requests about it get `then`."""
    before = set_up(direct, case).read().read_all().num_rows
    store = new_store(far)
    store.topic("t").end_offsets()
    # Not before: to make a client takes its time on a busy machine.
    far._client.patience_seconds = PATIENCE_SECONDS
    hit: list[str] = []

    def decide(method: str, path: str) -> WireFault | Refusal | None:
        found = NUMBERED.search(path)
        if found is None:
            return None
        if not hit and method in ("PUT", "POST"):
            hit.append(found[0])
            return first
        if hit and found[0] == hit[0]:
            if late_at_once:
                proxy.deliver_late()
            return then
        return None

    proxy.decide = decide
    error: LogTableError | None = None
    try:
        case.run(store)
    except (CommitUnknownError, StorageError) as raised:
        error = raised
    proxy.decide = None
    proxy.deliver_late()
    assert hit, "the job has put nothing"
    is_entry = hit[0].startswith("/_delta_log")  # of a table that can simply be published again
    assert isinstance(error, StorageError if is_entry else CommitUnknownError), error
    again = new_store(direct)
    for name in again.topics():
        found = again.topic(name).verify(data=True)
        assert found, found
    after = len(rows_of(again, "t"))
    landed = first is not WireFault.DROP and hit[0].startswith("/_manifest")
    if case.adds:
        assert after == before + (case.adds if landed else 0)
    elif case.removes:
        assert (after < before) is landed
    else:
        assert after == before
