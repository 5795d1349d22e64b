"""An import whose values, and perhaps keys, become columns."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.engine import AppendPlan, Staged, Stager
from pylogtable.errors import InvalidRequestError, StorageError, TopicNotFoundError
from pylogtable.events import log_event
from pylogtable.format.config import stored_config
from pylogtable.format.model import TopicInfo
from pylogtable.kafka.batch import Batch
from pylogtable.kafka.client import StoppedError
from pylogtable.kafka.rows import last_places
from pylogtable.kafka.typed.columns_plan import (
    ORIGINS,
    ColumnsRefusedError,
    Evolution,
    check_same_options,
    evolved_info,
    noted_origins,
    plan_evolution,
)
from pylogtable.kafka.typed.dead_letters import DeadLetters, first_reason, letters_of
from pylogtable.kafka.typed.options import FAIL, ValueOptions
from pylogtable.kafka.typed.typed_rows import (
    Dead,
    Named,
    TypedRows,
    Values,
    first_dead,
    named_keys,
    named_values,
    typed_rows,
)
from pylogtable.kafka.values.decoder import Decoder, decoder
from pylogtable.store import Store
from pylogtable.topic import Topic

#: How long to wait for a registry that is away.
AGAIN_SECONDS = 1.0
#: An import that follows may have dead letters all the time; a log need not say so more often.
TOLD_SECONDS = 60.0

_logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Decoders:
    """Those of values and of keys. `keys` is None if keys are bytes."""

    values: Decoder
    keys: Decoder | None

    @staticmethod
    def of(options: ValueOptions) -> Decoders:
        """Raises if the options do not fit the formats."""

        def made(kind: str, schema: str | None, *, is_key: bool) -> Decoder:
            return decoder(
                kind,
                schema_registry=options.schema_registry if schema is None else None,
                schema=schema,
                registry_settings=options.registry_settings or None,
                is_key=is_key,
            )

        keys = None
        if options.key_format is not None:
            keys = made(options.key_format, options.key_schema, is_key=True)
        return Decoders(made(options.value_format, options.value_schema, is_key=False), keys)

    def decode(self, rows: pa.RecordBatch) -> tuple[Values, Values | None]:
        """The values and the keys of these rows of Kafka."""
        headers = rows["headers"]
        values = self.values.decode(rows["value"], headers)
        return values, None if self.keys is None else self.keys.decode(rows["key"], headers)


@dataclass(frozen=True)
class Patience:
    """What is asked of a registry is asked again as long as an import that follows lives."""

    follow: bool
    stop: Callable[[], bool]
    pause: Callable[[float], None]

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """The answer. Raises `StorageError` if there is none, unless the import follows."""
        has_warned = False
        while True:
            try:
                return question()
            except StorageError as error:  # noqa: PERF203 (a retry needs it)
                if not self.follow:
                    raise
                if self.stop():
                    raise StoppedError from error
                if not has_warned:
                    warnings.warn(f"{error}. The import goes on trying", stacklevel=2)
                    has_warned = True
                self.pause(AGAIN_SECONDS)


Evolve = Callable[[Evolution], AppendPlan]
#: The same for a topic that nobody has.
Change = Callable[[Evolution], TopicInfo]


class TypedRowsMaker:
    """Makes rows of a typed topic of rows of Kafka. The topic gets the columns that they need."""

    def __init__(
        self,
        decoders: Decoders,
        patience: Patience,
        plan: AppendPlan,
        origins: dict[str, str] | None = None,
    ) -> None:
        self._decoders = decoders
        self._patience = patience
        self._origins = {} if origins is None else origins
        self.plan = plan

    def make(self, rows: pa.RecordBatch, evolve: Evolve) -> TypedRows:
        """The rows, and what is left of them. `evolve` adds and widens columns of the topic, and
        returns the plan of an append after that."""

        def change(evolution: Evolution) -> TopicInfo:
            self.plan = evolve(evolution)
            return self.plan.info

        decoded = self._patience.ask(lambda: self._decoders.decode(rows))
        return made_rows(rows, decoded, self.plan.info, self._origins, change)


def made_rows(
    rows: pa.RecordBatch,
    decoded: tuple[Values, Values | None],
    info: TopicInfo,
    origins: dict[str, str],
    change: Change,
) -> TypedRows:
    """The rows of a topic with these columns, which `change` adds to and widens."""
    values, keys = decoded
    named, dead = named_values(values, info, origins)
    named_by_key: list[Named] | None = None
    if keys is not None:
        named_by_key, more = named_keys(keys)
        dead = [*more, *dead]
    info, refused = _evolved(info, named, change)
    return typed_rows(
        rows,
        named,
        named_by_key,
        _by_first([*dead, *refused]),
        info,
        refuses_null_keys=stored_config(info.config).is_compacted,
    )


def _evolved(
    info: TopicInfo, named: Sequence[Named], change: Change
) -> tuple[TopicInfo, list[Dead]]:
    """The topic gets the columns of all schemas at once, or if it refuses that, of one after the
    other. The values of those that it refuses are dead."""
    evolution = plan_evolution(info, [one.types for one in named])
    if not evolution:
        return info, []
    try:
        return change(evolution), []
    except ColumnsRefusedError as error:
        if len(named) == 1:
            return info, named[0].dead(f"its columns were refused: {error}")
    dead: list[Dead] = []
    for one in named:
        info, more = _evolved(info, [one], change)
        dead += more
    return info, dead


@contextmanager
def columns_may_be_refused() -> Iterator[None]:
    """For the alteration of columns alone: what else is refused ends the import."""
    try:
        yield
    except TopicNotFoundError:
        raise
    except InvalidRequestError as error:
        raise ColumnsRefusedError(str(error)) from error


def _by_first(dead: list[Dead]) -> list[Dead]:
    """One for each row: that of the key, if neither decodes."""
    return list({one.row: one for one in reversed(dead)}.values())


@dataclass
class TypedBatch:
    """Takes rows of Kafka until there are enough for a commit. `ends` are those of the copy."""

    maker: TypedRowsMaker
    letters: DeadLetters
    ends: Mapping[int, int]
    encoders: Executor
    evolve: Evolve
    on_error: str
    _staged: list[Staged] = field(default_factory=list)
    _dead: list[pa.RecordBatch] = field(default_factory=list)
    _schema_ids: dict[int, int] = field(default_factory=dict)
    _lasts: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stack = ExitStack()
        self._stager = self._begin(self.maker.plan)

    def _begin(self, plan: AppendPlan) -> Stager:
        return self._stack.enter_context(plan.begin(encoders=self.encoders))

    def __enter__(self) -> TypedBatch:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._stack.__exit__(kind, error, trace)

    def add(self, rows: pa.RecordBatch) -> None:
        """Take all of these rows. Those that are no rows of the topic become dead letters."""
        known = self.letters.are_known(rows)
        if known.any():
            rows = rows.filter(pa.array(~known))
            if not rows.num_rows:
                return
        made = self.maker.make(rows, self._evolved)
        if made.dead:
            if self.on_error == FAIL:
                raise InvalidRequestError(
                    f"{first_dead(made.dead, rows)}. To go on without such records, and keep them "
                    f"in topic {self.letters.name!r}, import with --on-error dead-letter "
                    "(on_error='dead-letter')"
                )
            self._dead.append(letters_of(rows, made.dead, self._copy_ends(rows, made.places)))
        if made.rows.num_rows:
            self._stager.add(made.rows)
            self._lasts.update(last_places(made.rows))
        for schema_id, count in made.schema_ids.items():
            self._schema_ids[schema_id] = self._schema_ids.get(schema_id, 0) + count

    def _evolved(self, evolution: Evolution) -> AppendPlan:
        """Rows are shaped for the columns of one version: those that come now are staged anew, for
        the same commit."""
        plan = self.evolve(evolution)  # the topic may refuse it
        self._staged.append(self._stager.finish())
        self._stager = self._begin(plan)
        return plan

    def _copy_ends(
        self, rows: pa.RecordBatch, places: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Where the copy of its partition ends before each of these rows."""
        numbers, offsets = rows["partition"].to_numpy(), rows["offset"].to_numpy()
        after = np.zeros(rows.num_rows, np.int64)
        after[places] = offsets[places] + 1
        for number in np.unique(numbers).tolist():
            mine = np.flatnonzero(numbers == number)
            end = self._lasts.get(number, self.ends.get(number, 0))
            after[mine] = np.maximum(np.maximum.accumulate(after[mine]), end)
        return after

    def finish(self) -> Batch:
        """What the commits of the records and of the dead letters are to have."""
        self._staged.append(self._stager.finish())
        staged = [part for part in self._staged if part.files]
        return Batch(self.maker.plan, staged, self._lasts, self._dead, self._schema_ids)


class TypedImport:
    """What an import needs to turn the values of one topic into columns. `alter` changes the
    columns of the copy."""

    def __init__(
        self,
        store: Store,
        options: ValueOptions,
        patience: Patience,
        app_id: str,
        kafka_id: str | None,
        now: Callable[[], float],
    ) -> None:
        self.options = options
        self.decoders = Decoders.of(options)
        self.patience = patience
        self._store = store
        self._app_id = app_id
        self._kafka_id = kafka_id
        self._letters: DeadLetters | None = None
        self._now = now
        self._buried = 0
        self._told: float | None = None
        #: Of which fields the columns with a prefix are; see `ValueNames`.
        self.origins: dict[str, str] = {}

    @property
    def formats(self) -> dict[str, Any]:
        """What the last commit of dead letters tells a redrive."""
        options = self.options
        return {"value_format": options.value_format, "key_format": options.key_format}

    @property
    def note(self) -> dict[str, Any]:
        """What the last commit of an import tells the next one, and a redrive."""
        origins = noted_origins(self.origins)
        return {**self.formats, ORIGINS: origins} if origins else self.formats

    def check_options(self, copy: Topic, info: TopicInfo, note: Any) -> None:
        """Raise if the copy was made with other options. `note` is that of its last commit."""
        made_by = note if isinstance(note, dict) and "value_format" in note else None
        asked = {**self.formats, "keep_raw": self.options.keep_raw}
        check_same_options(copy.name, info, made_by, asked)
        self.origins = {**self.origins, **(made_by or {}).get(ORIGINS, {})}

    def rows_of(self, rows: pa.RecordBatch, info: TopicInfo) -> TypedRows:
        """What would become of these rows in a new topic with these columns."""
        decoded = self.patience.ask(lambda: self.decoders.decode(rows))
        return made_rows(rows, decoded, info, self.origins, partial(evolved_info, info))

    def positions(self, copy: Topic, ends: Mapping[int, int]) -> dict[int, int]:
        """Where a copy with these ends goes on: behind its last dead letters."""
        note = {**self.formats, "kafka_id": self._kafka_id}
        self._letters = DeadLetters(self._store, copy, self._app_id, note)
        return self._letters.positions(ends)

    def batch(
        self,
        plan: AppendPlan,
        ends: Mapping[int, int],
        encoders: Executor,
        evolve: Evolve,
    ) -> TypedBatch:
        """The rows of the next commit, of a copy with these ends."""
        assert self._letters is not None
        maker = TypedRowsMaker(self.decoders, self.patience, plan, self.origins)
        return TypedBatch(maker, self._letters, ends, encoders, evolve, self.options.on_error)

    def bury(self, letters: Sequence[pa.RecordBatch]) -> int:
        """Append dead letters. This comes before the commit of the records around them."""
        assert self._letters is not None
        count = self._letters.append(letters) if letters else 0
        self._buried += count
        now = self._now()
        is_silent = self._told is None or now - self._told >= TOLD_SECONDS
        if count and is_silent and self.patience.follow:  # any other import ends with a report
            self._told = now
            log_event(
                _logger,
                logging.WARNING,
                "%(dead_letters)s of the records so far are in topic %(topic)s, not in the copy. "
                "The first one now: %(reason)s",
                dead_letters=self._buried,
                store=self._store.url,
                topic=self._letters.name,
                reason=first_reason(letters),
            )
        return count
