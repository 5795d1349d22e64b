"""Imports a topic of Kafka: every record comes under the partition and offset it has there.

The copy is its own memory: it continues at its end offsets. Each commit carries a txn whose number
is the sum of the end offsets after it, and whose origin is Kafka's id of the topic. So an import
knows its own copy again, and notices if another writer was there, or if Kafka's topic is another
one.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import suppress

import pyarrow as pa

from pylogtable.engine import AppendPlan, plan_append
from pylogtable.errors import (
    CommitConflictError,
    InvalidRequestError,
    StorageError,
    TopicExistsError,
    TopicNotFoundError,
)
from pylogtable.events import log_event
from pylogtable.format.guard_rules import source_of
from pylogtable.format.model import CopyOf
from pylogtable.format.schema import is_kafka_shaped
from pylogtable.kafka.background import Aside
from pylogtable.kafka.batch import Batch, Batching, BytesBatch
from pylogtable.kafka.client import StoppedError, advised
from pylogtable.kafka.import_groups import ImportedGroups
from pylogtable.kafka.import_notices import (
    not_guarded,
    transaction_is_open,
    unused_settings,
    unused_timestamp,
)
from pylogtable.kafka.import_plan import (
    Copy,
    check_import,
    check_not_promoted,
    check_same_topic,
    check_shape,
    check_source,
    gap,
    positions_to_begin,
    positions_to_resume,
    settings_left_out,
    settings_to_copy,
)
from pylogtable.kafka.import_report import ImportOptions, ImportProgress, ImportReport
from pylogtable.kafka.import_threads import ImportThreads, threads_of_import
from pylogtable.kafka.rows import last_places, rows_of
from pylogtable.kafka.source import KafkaSource, Received
from pylogtable.kafka.typed.columns_plan import Evolution, is_typed
from pylogtable.kafka.typed.first_look import FirstLook, Looking
from pylogtable.kafka.typed.typed_import import Patience, TypedImport, columns_may_be_refused
from pylogtable.operation import operation
from pylogtable.runtime import Runtime
from pylogtable.store import Store
from pylogtable.topic import Topic

_logger = logging.getLogger(__name__)


#: Messages that are taken from librdkafka at a time.
READ_MESSAGES = 20_000
#: The longest wait for messages, so that a stop is noticed soon.
READ_SECONDS = 0.2


class Import:
    """One run of an import."""

    def __init__(
        self,
        store: Store,
        source: KafkaSource,
        kafka_topic: str,
        name: str,
        options: ImportOptions,
        runtime: Runtime,
    ) -> None:
        self._store = store
        self._silence_seconds = store._store.limits.kafka_silence_seconds
        self._source = source
        self._name = name
        self._kafka_topic = kafka_topic
        self._options = options
        self._now = runtime.monotonic
        cluster, self._partitions = source.describe()
        self._app_id = f"kafka:{cluster}/{kafka_topic}"
        self._kafka_id = source.topic_id()
        self._copy_of = CopyOf(
            kind="kafka",
            name=kafka_topic,
            cluster=cluster,
            address=source.servers,
            app_id=self._app_id,
        )
        self._settings_left_out: dict[str, str] = {}
        self._groups = ImportedGroups()
        self._records = self._size_bytes = self._commits = self._dead_letters = 0
        self._first: dict[int, int] = {}
        self._schema_ids: Counter[int] = Counter()
        self._typed: TypedImport | None = None
        if options.values is not None:
            patience = Patience(options.follow, options.stop, runtime.pause)
            given = store, options.values, patience, self._app_id, self._kafka_id, self._now
            self._typed = TypedImport(*given)

    def run(self) -> ImportReport:
        """Import until the end, or until it is stopped."""
        began = self._now()
        bounds, waiting = self._bounds()
        opened = self._open_copy(bounds)
        if opened is None:
            seconds = self._now() - began
            return ImportReport(self._name, 0, 0, seconds, {}, left_out=self._settings_left_out)
        self._topic = opened
        self._warn_of_unused()
        if waiting:
            warnings.warn(transaction_is_open(waiting), stacklevel=3)
        self._reached = self._begin(bounds)
        self._targets = {number: high for number, (_, high) in bounds.items()}
        refreshed = heard = self._now()
        with threads_of_import() as threads:
            while not self._is_done():
                before = self._records, self._dead_letters
                try:
                    self._commit_next(threads)
                except StoppedError:  # while the schema registry was away
                    break
                except InvalidRequestError as error:
                    copy_of = self._topic.at().snapshot.info.copy_of
                    check_not_promoted(error, self._name, copy_of, self._records)
                    raise
                now = self._now()
                if (self._records, self._dead_letters) != before:
                    heard = now
                elif now - heard > self._silence_seconds and not self._options.follow:
                    raise self._source.silence(now - heard, f"has sent nothing ({self._behind()})")
                self._tell(began)
                if self._options.follow and now - refreshed > self._options.refresh_seconds:
                    refreshed = now
                    self._refresh()
        self._copy_groups()
        return ImportReport(
            topic=self._name,
            records=self._records,
            commits=self._commits,
            seconds=self._now() - began,
            offsets={n: (first, self._ends[n]) for n, first in sorted(self._first.items())},
            groups=self._groups.positions,
            left_out={**self._settings_left_out, **self._groups.left_out},
            waiting=waiting,
            dead_letters=self._dead_letters,
            schema_ids=dict(sorted(self._schema_ids.items())),
            copy_of=source_of(self._copy_of) if self._is_guarded else "",
        )

    def _bounds(self) -> tuple[dict[int, tuple[int, int]], dict[int, int]]:
        """The first offset and the end of each partition, and how many offsets after that end a
        bounded import cannot have, because a transaction is open."""
        numbers = range(self._partitions)
        # Asked for first: what is appended meanwhile must not look like a transaction.
        written = {} if self._options.follow else self._source.written_ends(numbers)
        bounds = self._source.bounds(numbers)
        return bounds, {n: end - bounds[n][1] for n, end in written.items() if end > bounds[n][1]}

    def _open_copy(self, bounds: Mapping[int, tuple[int, int]]) -> Topic | None:
        """Open the copy, or create it. None if it is not known which columns it is to have."""
        try:
            return self._store.topic(self._name)
        except TopicNotFoundError:
            pass
        in_force: dict[str, str] = {}
        chosen: dict[str, str] = {}
        if self._options.copy_settings:
            with advised(
                "To import without Kafka's settings, use --no-copy-settings (copy_settings=False)"
            ):
                in_force, chosen = self._source.topic_settings()
        config = {**settings_to_copy(in_force), **self._options.config}
        starts = self._starts(bounds)
        self._source.check_readable(starts)  # before there is an empty topic
        schema: pa.Schema | None = None
        key: list[str] | None = None
        if self._typed is not None:
            ends = {number: high for number, (_, high) in bounds.items()}
            until = Looking(ends, self._options, self._now, self._silence_seconds)
            look = FirstLook(self._typed, self._kafka_topic)
            columns = look.columns(self._source, starts, until)
            if columns is None:
                self._settings_left_out = {self._name: look.nothing}
                return None
            schema, key = columns
        with suppress(TopicExistsError):  # another import was faster
            self._store._create_copy(
                self._copy_of, self._name, self._partitions, schema, key, config, starts
            )
        self._settings_left_out = settings_left_out(chosen)
        return self._store.topic(self._name)

    def _warn_of_unused(self) -> None:
        """Before the first commit, so that an error made of a warning changes nothing."""
        options = self._options
        texts = unused_settings(self._name, options.config, self._topic.describe().config)
        if options.from_timestamp_ms is not None and self._topic.last_txn(self._app_id) is not None:
            texts.append(unused_timestamp(self._name))
        for text in texts:
            warnings.warn(text, stacklevel=4)

    def _starts(self, bounds: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        when = self._options.from_timestamp_ms
        if when is not None:
            return self._source.offsets_at(when, bounds)
        return {number: low for number, (low, _) in bounds.items()}

    def _begin(self, bounds: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Begin to read where the copy ends; returns these offsets. All is decided by one version
        of the copy: what another writer appends meanwhile must not look like the import's own."""
        view = self._topic.at()
        mark = view.snapshot.txns.get(self._app_id)
        last, note = None, None
        if mark is not None:
            made = self._topic.txn(self._app_id)
            note = None if made is None else made.note
            plan = plan_append(self._topic, refresh=False, app_id=self._app_id)
            last = plan.find_txn(self._app_id, mark.txn_version)
        copy = Copy(
            name=self._name,
            starts=view.start_offsets,
            ends=view.end_offsets,
            imported_to=None if mark is None else mark.txn_version,
            is_kafka_shaped=is_kafka_shaped(view.schema),
            kafka_id=None if last is None else last.origin,
            is_typed=is_typed(view.schema),
            copy_of=view.snapshot.info.copy_of,
            app_ids=sorted(view.snapshot.txns),
        )
        check_source(copy, self._copy_of)
        check_same_topic(copy.name, copy.kafka_id, self._kafka_id)
        check_shape(copy, typed=self._typed is not None)
        if self._typed is not None:
            self._typed.check_options(self._topic, view.snapshot.info, note)
        check_import(copy, self._partitions)
        self._ends = {**dict.fromkeys(range(self._partitions), 0), **copy.ends}
        if copy.imported_to is None:
            positions = positions_to_begin(copy, self._starts(bounds))
            if self._typed is not None:
                positions = self._typed.positions(self._topic, positions)
        else:
            allow_gaps = self._options.allow_gaps
            ends = self._ends
            if self._typed is not None:
                ends = self._typed.positions(self._topic, ends)
            positions = positions_to_resume(ends, bounds, allow_gaps=allow_gaps)
        self._take_over(copy)
        self._source.begin(positions)
        return positions

    def _take_over(self, copy: Copy) -> None:
        """Guard the copy if it is empty, or if that is asked for, and give it Kafka's partitions. A
        copy of an earlier release is not guarded by itself: that release may be using it."""
        self._is_guarded = (
            copy.copy_of is not None or copy.imported_to is None or self._options.guard
        )
        if self._is_guarded:
            self._topic._guard(self._copy_of, partitions=self._partitions)
            return
        warnings.warn(not_guarded(self._name), stacklevel=5)
        if len(copy.ends) < self._partitions:
            self._topic.alter(partitions=self._partitions)

    def _is_done(self) -> bool:
        if self._options.stop():
            return True
        return not self._options.follow and self._is_at_the_end()

    def _is_at_the_end(self) -> bool:
        return all(self._reached[number] >= end for number, end in self._targets.items())

    def _behind(self) -> str:
        """Which partitions are not at the end yet."""
        places = sorted((n, self._reached[n], end) for n, end in self._targets.items())
        return ", ".join(
            f"partition {number} is at {at} of {end}" for number, at, end in places if at < end
        )

    @operation
    def _commit_next(self, threads: ImportThreads) -> None:
        """Read until there is enough for a commit, and commit it. Without a commit if nothing
        comes for a while. Rows are shaped and encoded in other threads while more are read."""
        options, began = self._options, self._now()
        size = 0
        with self._batch(threads.encoders) as batch:
            with Aside(threads.shapers) as aside:
                deadline = self._now() + options.linger_seconds
                while size < options.batch_bytes and self._now() < deadline and not options.stop():
                    received = self._source.receive(READ_MESSAGES, READ_SECONDS)
                    if received.messages:
                        rows = rows_of(received.messages)
                        aside.run(batch.add, rows)
                        size += rows.nbytes
                        self._reached.update(last_places(rows))
                    self._note(received)
                    if not options.follow and self._is_at_the_end():
                        break
                aside.wait()
            whole = batch.finish()
            if self._typed is not None:  # a crash between these commits loses nothing
                self._dead_letters += self._typed.bury(whole.letters)
        if whole.lasts:
            self._commit(whole, size, began)
        self._size_bytes += size

    def _batch(self, encoders: Executor) -> Batching:
        plan = plan_append(self._topic, keep_offsets=True, app_id=self._app_id)
        if self._typed is None:
            return BytesBatch(plan, encoders)
        return self._typed.batch(plan, self._ends, encoders, self._evolve)

    def _evolve(self, evolution: Evolution) -> AppendPlan:
        """Add and widen columns of the copy, for values that come now."""
        plan_append(self._topic, app_id=self._app_id)  # no column for a topic that was promoted
        with columns_may_be_refused():
            self._topic._alter_as(self._app_id, **evolution.arguments())
        return plan_append(self._topic, keep_offsets=True, app_id=self._app_id)

    def _commit(self, batch: Batch, size: int, began: float) -> None:
        ends = {**self._ends, **batch.lasts}
        txn = self._app_id, sum(ends.values())
        try:
            result = batch.plan.commit(
                batch.staged,
                txn=txn,
                origin=self._kafka_id,
                expected_ends=self._ends,
                note=None if self._typed is None else self._typed.note,
                summary={f"value_schema_{name}": n for name, n in batch.schema_ids.items()},
            )
        except CommitConflictError as error:
            raise CommitConflictError(
                f"topic {self._name!r}: {error}. Perhaps that is another import: run one at a "
                "time, and repeat it"
            ) from error
        self._schema_ids.update(batch.schema_ids)
        for number, (first, _) in result.offsets.items():
            self._first.setdefault(number, first)
        self._ends = ends
        self._records += result.records
        self._commits += 1
        log_event(
            _logger,
            logging.INFO,
            "an import brought %(records)s records to topic %(topic)s",
            records=result.records,
            store=self._store.url,
            topic=self._name,
            version=result.version,
            bytes=size,
            seconds=round(self._now() - began, 6),
        )

    def _note(self, received: Received) -> None:
        """Note which ends were reached, and go on where Kafka has lost the position."""
        for number, offset in received.reached.items():
            self._reached[number] = max(self._reached[number], offset)
        for number in received.lost:
            low, _ = self._source.bounds([number])[number]
            if not self._options.allow_gaps:
                raise gap(number, self._reached[number], low)
            self._reached[number] = low
            self._source.skip_to(number, low)

    def _refresh(self) -> None:
        """Follow new partitions and positions of groups. A broker may be away for a while, and
        librdkafka reads on when it is back."""
        try:
            self._add_partitions()
            self._copy_groups()
        except StoppedError:
            return  # what was imported is in the report
        except StorageError as error:
            warnings.warn(f"{error}. The import goes on, and tries it again", stacklevel=4)

    def _add_partitions(self) -> None:
        """Follow Kafka if partitions were added there. Raises if the topic is another one."""
        check_same_topic(self._name, self._kafka_id, self._source.topic_id())
        _, count = self._source.describe()
        if count <= self._partitions:
            return
        if count > len(self._topic.end_offsets()):  # an attempt may have failed after this
            self._topic._alter_as(self._app_id, partitions=count)
        new = range(self._partitions, count)
        bounds = self._source.bounds(new)
        self._ends = {**dict.fromkeys(new, 0), **self._ends}
        allow_gaps = self._options.allow_gaps
        positions = positions_to_resume(self._ends, bounds, allow_gaps=allow_gaps)
        self._source.begin(positions)
        self._reached.update(positions)
        self._partitions = count

    def _copy_groups(self) -> None:
        wanted = self._options.groups
        if not wanted:
            return
        asked = None if isinstance(wanted, bool) else wanted
        with advised(
            f"The {self._records:,} record(s) that this import has copied stay; not all positions "
            "of groups are copied. Run it again, or name the groups in Python: groups=['billing']"
        ):
            found = self._source.groups(range(self._partitions), asked)
        self._groups.set(self._topic, found, asked, self._ends)

    def _tell(self, began: float) -> None:
        if self._options.on_progress is None:
            return
        ends = self._source.known_ends(range(self._partitions))
        lag = {number: max(0, end - self._reached[number]) for number, end in ends.items()}
        seconds = self._now() - began
        self._options.on_progress(
            ImportProgress(
                self._records, self._commits, seconds, lag, self._size_bytes, self._dead_letters
            )
        )
