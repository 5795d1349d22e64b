"""Tries dead letters again, and takes those that decode now to where they belong.

The holes that they left in the copy stay: offsets of the past cannot be given again. As long as the
topic is Kafka's copy they go to a topic beside it, and after its promotion to the topic itself, at
its end.

A batch is two commits: its records, and then the tombstones of their dead letters. The first one
notes which dead letters it has taken, so a redrive that begins after a crash makes up for the
second.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.arguments import check_callable, check_flags, check_name
from pylogtable.engine import AppendPlan, plan_append
from pylogtable.errors import (
    CommitConflictError,
    InvalidRequestError,
    TopicExistsError,
    TopicNotFoundError,
)
from pylogtable.format.guard_rules import guard_of
from pylogtable.kafka.topics_plan import REDRIVEN
from pylogtable.kafka.typed.columns_plan import (
    KAFKA_OFFSET,
    KAFKA_PARTITION,
    ORIGINS,
    Evolution,
    evolved_info,
    is_typed,
)
from pylogtable.kafka.typed.dead_letters import SCHEMA, dead_letters_of
from pylogtable.kafka.typed.options import checked_value_options
from pylogtable.kafka.typed.typed_import import (
    Decoders,
    Patience,
    TypedRowsMaker,
    columns_may_be_refused,
)
from pylogtable.runtime import Runtime
from pylogtable.store import Store
from pylogtable.topic import Topic
from pylogtable.tracing import span

#: Dead letters of one batch. Its note has a bit for each of them, and holds 4 KiB [TXN-7].
WINDOW = 16_384

Int64s = npt.NDArray[np.int64]
_TAKEN = ["kafka_partition", "kafka_offset", "kafka_timestamp", "key", "value", "headers"]
#: The log's own columns.
_LOG = ("partition", "offset", "timestamp")
_PLACE = pa.schema([SCHEMA.field(KAFKA_PARTITION), SCHEMA.field(KAFKA_OFFSET)])


@dataclass(frozen=True)
class RedriveReport:
    """What `redrive` did. `topic` is where records have gone to. `dead` is how many are still dead,
    and `reasons` has how many for each reason. With `dry_run` nothing was changed."""

    topic: str
    redriven: int
    dead: int
    seconds: float
    reasons: dict[str, int] = field(default_factory=dict)
    dry_run: bool = False


def redriven_of(name: str) -> str:
    """The topic of the dead letters that decode, as long as this one is a copy."""
    return f"{name}{REDRIVEN}"


def redrive(
    store: Store,
    topic: str,
    *,
    schema_registry: str | None = None,
    value_schema: str | None = None,
    key_schema: str | None = None,
    registry_settings: Mapping[str, Any] | None = None,
    value_format: str | None = None,
    key_format: str | None = None,
    dry_run: bool = False,
    stop: Callable[[], bool] | None = None,
) -> RedriveReport:
    """Try the dead letters of a topic again, which `import_topic` has left, with the schemas of
    now. Use it when a schema was registered late, or a decoder was repaired.

    >>> pylogtable.kafka.redrive(store, "orders", schema_registry="http://registry:8081").redriven

    As long as the topic is Kafka's copy, what decodes goes to `<topic>-redriven`, with its place in
    Kafka in `kafka_partition` and `kafka_offset`. After its promotion it goes to the end of the
    topic itself. Each record goes there once, however often a redrive is killed and repeated. What
    is still dead is `latest()` of `<topic>-dead-letters`, without its tombstones.

    Formats are those of the import, unless others are given. `stop()` ends it after a batch.
    """
    if not isinstance(store, Store):
        raise InvalidRequestError(
            f"`store` must be a store, such as pylogtable.open('s3://bucket/logs'), not {store!r}"
        )
    check_name("topic", topic)
    check_flags(dry_run=dry_run)
    check_callable("stop", stop)
    with span("job", topic=topic, job="redrive"):
        running = _Redrive(store, topic, dry_run=dry_run)
        note = running.note(value_format)
        options = checked_value_options(
            value_format=value_format or note.get("value_format"),
            key_format=key_format or note.get("key_format"),
            schema_registry=schema_registry,
            value_schema=value_schema,
            key_schema=key_schema,
            registry_settings=registry_settings,
        )
        assert options is not None
        return running.run(Decoders.of(options), stop or (lambda: False))


class _Redrive:
    def __init__(self, store: Store, name: str, *, dry_run: bool) -> None:
        self._store = store
        self._name = name
        self._dry_run = dry_run
        self._now = Runtime().monotonic
        try:
            self._copy = store.topic(name)
        except TopicNotFoundError:
            raise TopicNotFoundError(
                f"there are no dead letters of {name!r}, because there is no topic {name!r} in "
                f"{store.url}: give the name of the copy that an import has made"
            ) from None
        try:
            self._letters = store.topic(dead_letters_of(name))
        except TopicNotFoundError:
            raise TopicNotFoundError(
                f"topic {name!r} has no dead letters: there is no topic {dead_letters_of(name)!r}"
            ) from None
        if not is_typed(self._copy.schema):
            raise InvalidRequestError(
                f"topic {name!r} has no columns of a typed import, so it has no dead letters"
            )
        is_copy = guard_of(self._copy.at().snapshot.info) is not None
        self._target_name = redriven_of(name) if is_copy else name
        self._app_id = f"redrive:{self._letters.topic_id}"

    def note(self, value_format: str | None) -> dict[str, Any]:
        """What the last import has noted."""
        for app_id in self._letters.at().snapshot.txns:
            made = self._letters.txn(app_id)
            if made is not None and isinstance(made.note, dict) and "value_format" in made.note:
                return dict(made.note)
        if value_format is None:
            raise InvalidRequestError(
                f"topic {self._letters.name!r} does not say how its values were written: give "
                "`value_format`, and `key_format` if keys were decoded"
            )
        return {}

    def run(self, decoders: Decoders, stop: Callable[[], bool]) -> RedriveReport:
        began = self._now()
        if not self._dry_run:
            for name in {self._name, redriven_of(self._name)}:
                with suppress(TopicNotFoundError):
                    self._make_up(self._store.topic(name))
        redriven, reasons = 0, Counter[str]()
        dead = self._dead()
        patience = Patience(follow=False, stop=stop, pause=Runtime().pause)
        maker = TypedRowsMaker(decoders, patience, self._plan(), self._origins())
        for window in self._windows(dead):
            if stop():
                break
            made, why = self._try(maker, window)
            reasons.update(why)
            redriven += made
        return RedriveReport(
            self._target_name,
            redriven,
            len(dead) - redriven,
            self._now() - began,
            dict(reasons.most_common()),
            self._dry_run,
        )

    def _origins(self) -> dict[str, str]:
        """Of which fields columns with a prefix are, as the last import has noted it."""
        for app_id in self._copy.at().snapshot.txns:
            made = self._copy.txn(app_id)
            if made is not None and isinstance(made.note, dict) and "value_format" in made.note:
                return dict(made.note.get(ORIGINS, {}))
        return {}

    def _dead(self) -> Int64s:
        """The offsets of the dead letters whose newest record is no tombstone."""
        columns = [KAFKA_PARTITION, KAFKA_OFFSET, "offset", "part"]
        batches = list(self._letters.read(columns=columns))
        if not batches:
            return np.empty(0, np.int64)
        table = pa.Table.from_batches(batches)
        numbers, places, offsets = (
            table[name].to_numpy() for name in (KAFKA_PARTITION, KAFKA_OFFSET, "offset")
        )
        is_dead = table["part"].is_valid().to_numpy()
        order = np.lexsort((offsets, places, numbers))
        numbers, places = numbers[order], places[order]
        is_newest = np.append((np.diff(numbers) != 0) | (np.diff(places) != 0), True)
        newest = order[is_newest]
        found: Int64s = np.sort(offsets[newest[is_dead[newest]]])
        return found

    def _windows(self, dead: Int64s) -> Iterator[pa.Table]:
        """The dead letters, batch by batch, in the order in which they came."""
        at = 0
        while at < len(dead):
            first = int(dead[at])
            to = int(np.searchsorted(dead, first + WINDOW))
            read = self._letters.read(0, first, int(dead[to - 1]) + 1, ["offset", *_TAKEN])
            rows = read.read_all()
            yield rows.filter(pa.array(np.isin(rows["offset"].to_numpy(), dead[at:to])))
            at = to

    def _try(self, maker: TypedRowsMaker, letters: pa.Table) -> tuple[int, Counter[str]]:
        """Redrive those of these dead letters that decode; how many, and why the others do not."""
        rows = letters.rename_columns(
            ["letter", "partition", "offset", "timestamp", *letters.column_names[4:]]
        )
        (batch,) = rows.drop_columns("letter").combine_chunks().to_batches()
        made = maker.make(batch, self._evolve)
        why = Counter(dead.reason for dead in made.dead)
        if made.places.size and not self._dry_run:
            target = self._target()
            if maker.plan.name != target.name:  # it was created just now
                maker.plan = plan_append(target)
            places = batch.take(pa.array(made.places))
            self._append(target, made.rows, places, rows["letter"].to_numpy()[made.places])
        return len(made.places), why

    def _append(
        self, target: Topic, rows: pa.RecordBatch, places: pa.RecordBatch, letters: Int64s
    ) -> None:
        columns = {name: rows[name] for name in rows.schema.names if name != "offset"}
        if target.name != self._name:
            columns |= {
                KAFKA_PARTITION: places["partition"],
                KAFKA_OFFSET: places["offset"],
            }
            needed = int(places["partition"].to_numpy().max()) + 1
            if needed > len(target.end_offsets()):
                target.alter(partitions=needed)
        last = target.last_txn(self._app_id)
        number = 0 if last is None else last + 1
        first = int(letters[0])
        bits = np.zeros(int(letters[-1]) - first + 1, np.bool_)
        bits[letters - first] = True
        taken = base64.b64encode(np.packbits(bits).tobytes()).decode()
        result = target.append(
            pa.table(columns),
            txn=(self._app_id, number),
            expected_last=last,
            note={"first": first, "taken": taken},
        )
        if result.repeated:
            raise CommitConflictError(
                f"another redrive has written to topic {target.name!r}. Run one at a time, and "
                "repeat it"
            )
        self._remove(target, number, letters)

    def _make_up(self, target: Topic) -> None:
        """Remove the dead letters of the last batch that has come to this topic, if that was not
        done."""
        last = target.txn(self._app_id)
        if last is None:
            return
        bits = np.unpackbits(np.frombuffer(base64.b64decode(last.note["taken"]), np.uint8))
        self._remove(target, last.number, np.flatnonzero(bits) + int(last.note["first"]))

    def _remove(self, target: Topic, number: int, letters: Int64s) -> None:
        """Append the tombstones of these dead letters. A repeat appends nothing."""
        app_id = f"redriven:{target.topic_id}"
        done = self._letters.last_txn(app_id)
        if done is not None and done >= number:
            return
        span_of = int(letters[0]), int(letters[-1]) + 1
        read = self._letters.read(0, *span_of, ["offset", KAFKA_PARTITION, KAFKA_OFFSET]).read_all()
        mine = read.filter(pa.array(np.isin(read["offset"].to_numpy(), letters)))
        self._letters.append(mine.drop_columns("offset").cast(_PLACE), txn=(app_id, number))

    def _plan(self) -> AppendPlan:
        """For the columns of the topic that the records go to, or would have."""
        with suppress(TopicNotFoundError):
            return plan_append(self._store.topic(self._target_name))
        return plan_append(self._copy)

    def _target(self) -> Topic:
        """The topic that the records go to. One beside a copy has its columns, and two more."""
        with suppress(TopicNotFoundError):
            return self._store.topic(self._target_name)
        description = self._copy.describe()
        own = [column for column in self._copy.schema if column.name not in _LOG]
        schema = pa.schema([*own, *(column.with_nullable(True) for column in _PLACE)])
        with suppress(TopicExistsError):
            self._store.create_topic(
                self._target_name,
                len(self._copy.end_offsets()),
                schema,
                list(description.key),
                {"retention.ms": -1},
            )
        return self._store.topic(self._target_name)

    def _evolve(self, evolution: Evolution) -> AppendPlan:
        if not self._dry_run:
            target = self._target()
            with columns_may_be_refused():
                target.alter(**evolution.arguments())
            return plan_append(target)
        plan = self._plan()
        return replace(plan, info=evolved_info(plan.info, evolution))
