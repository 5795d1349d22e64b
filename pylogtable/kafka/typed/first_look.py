"""The first look at a topic of Kafka: which columns its copy is to have.

It reads about a thousand records, or more until a value, and a key if keys are decoded, has shown
its schema. Nothing is kept: the import reads these records again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from pylogtable.errors import InvalidRequestError
from pylogtable.format.model import Field, TopicInfo
from pylogtable.format.schema import from_arrow
from pylogtable.kafka.client import StoppedError
from pylogtable.kafka.import_report import ImportOptions
from pylogtable.kafka.rows import last_places, rows_of
from pylogtable.kafka.source import KafkaSource
from pylogtable.kafka.typed.columns_plan import new_columns
from pylogtable.kafka.typed.options import FAIL
from pylogtable.kafka.typed.typed_import import TypedImport
from pylogtable.kafka.typed.typed_rows import Values, first_dead
from pylogtable.kafka.values.decoder import Decoder

#: Enough to see the schemas that are in use; whatever comes later adds its columns.
MESSAGES = 1_000
SECONDS = 0.2


@dataclass(frozen=True)
class Looking:
    """How long to look: until the ends of a bounded import, which fails if nothing comes."""

    ends: Mapping[int, int]
    options: ImportOptions
    now: Callable[[], float]
    silence_seconds: float


class FirstLook:
    """A look at one topic of Kafka."""

    def __init__(self, typed: TypedImport, kafka_topic: str) -> None:
        self._typed = typed
        self._decoders = typed.decoders
        self._patience = typed.patience
        self._keep_raw = typed.options.keep_raw
        self._kafka_topic = kafka_topic
        #: The types of the first key and of the first value. That of a record is a struct.
        self._types: dict[str, pa.DataType] = {}
        self._records = 0
        #: Those that are looked at again, all together.
        self._rows: list[pa.RecordBatch] = []
        self._reached: dict[int, int] = {}
        self._why: dict[str, str] = {}

    @property
    def nothing(self) -> str:
        """Why there are no columns."""
        return (
            "Kafka's topic has no records, and the schema registry none of its schemas "
            f"({', '.join(self._subjects)}). The topic was not created; import again later"
        )

    @property
    def _subjects(self) -> list[str]:
        return [f"{self._kafka_topic}-{part}" for part, _ in self._parts]

    @property
    def _parts(self) -> list[tuple[str, Decoder]]:
        keys = self._decoders.keys
        values = ("value", self._decoders.values)
        return [values] if keys is None else [("key", keys), values]

    def columns(
        self, source: KafkaSource, starts: Mapping[int, int], until: Looking
    ) -> tuple[pa.Schema, list[str]] | None:
        """The columns, and those of the key. None if nobody knows. The source does not read when
        this returns. Raises if records are there, and none of them can be decoded: the format is
        wrong then, and a copy without any record helps nobody."""
        source.begin(starts)
        try:
            self._look(source, starts, until)
        finally:
            source.pause_reading()
        self._widen()
        self._ask_registry()
        decodes_keys = self._decoders.keys is not None
        for part, _ in self._parts:
            if part not in self._types and part in self._why:
                raise InvalidRequestError(
                    f"no {part} of the {self._records:,} records of {self._kafka_topic!r} can be "
                    f"decoded: {self._why[part]}. Check --{part}-format ({part}_format=) and where "
                    "its schema comes from. Nothing was imported"
                )
        if decodes_keys and "key" not in self._types and self._records:
            raise InvalidRequestError(
                f"no record of {self._kafka_topic!r} has a key, so the columns of the key are not "
                "known. Leave out --key-format (key_format=). Nothing was imported"
            )
        if not self._records and not self._knows_all():
            return None
        key, value = self._types.get("key"), self._types.get("value")
        schema, names = new_columns(key, value, keep_raw=self._keep_raw)
        self._try(schema, names, sees_all=self._is_at(until.ends))
        return schema, names

    def _try(self, schema: pa.Schema, key: list[str], *, sees_all: bool) -> None:
        """Raise if a topic with these columns would get none of the records, or if the import ends
        with its first dead letter and there is one: an empty topic helps nobody."""
        if not self._rows:
            return
        rows = _joined(self._rows)
        fields = (Field(name=one.name, type=from_arrow(one.type)) for one in schema)
        info = TopicInfo(fields=tuple(fields), key=tuple(key), partitions=1, created_at_ms=0)
        made = self._typed.rows_of(rows, info)
        if not made.dead:
            return
        why = first_dead(made.dead, rows)
        if self._typed.options.on_error == FAIL:
            raise InvalidRequestError(
                f"{why}. Nothing was imported. To go on without such records, and keep them as "
                "dead letters, import with --on-error dead-letter (on_error='dead-letter')"
            )
        if sees_all and not made.places.size:
            raise InvalidRequestError(
                f"none of the {self._records:,} records of {self._kafka_topic!r} can be a row of a "
                f"topic: {why}. Nothing was imported"
            )

    def _ask_registry(self) -> None:
        """Nothing has shown what is missing; the newest schema of the subject does."""
        for (part, decoder), subject in zip(self._parts, self._subjects, strict=True):
            if part in self._types:
                continue
            kind = self._patience.ask(partial(decoder.newest_type, subject))
            if kind is not None:
                self._types[part] = kind

    def _knows_all(self) -> bool:
        return all(part in self._types for part, _ in self._parts)

    def _look(self, source: KafkaSource, starts: Mapping[int, int], until: Looking) -> None:
        self._reached, began = dict(starts), until.now()
        reached, heard = self._reached, began
        while not self._is_enough(until, until.now() - began):
            if until.options.stop():
                raise StoppedError
            received = source.receive(MESSAGES, SECONDS)
            if received.messages:
                rows = rows_of(received.messages)
                self._take(rows)
                reached.update(last_places(rows))
            for number, offset in received.reached.items():
                reached[number] = max(reached[number], offset)
            for number in received.lost:
                reached[number] = source.bounds([number])[number][0]
                source.skip_to(number, reached[number])
            if received.messages or received.reached:
                heard = until.now()
            elif not until.options.follow and until.now() - heard > until.silence_seconds:
                raise source.silence(until.now() - heard, "has sent nothing")

    def _is_enough(self, until: Looking, seconds: float) -> bool:
        """The first value may be like no other one, so a few more are looked at. None is waited
        for."""
        if self._knows_all() and (
            self._records >= MESSAGES or seconds > until.options.linger_seconds
        ):
            return True
        if not self._is_at(until.ends):
            return False
        if self._records or self._knows_all() or not until.options.follow:
            return True
        self._ask_registry()  # an import that follows waits for one of both
        return self._knows_all()

    def _is_at(self, ends: Mapping[int, int]) -> bool:
        return all(self._reached[number] >= end for number, end in ends.items())

    def _take(self, rows: pa.RecordBatch) -> None:
        self._records += rows.num_rows
        known = len(self._types)
        if not self._knows_all():
            self._note_types(*self._decoded(rows))
        if self._records <= MESSAGES or len(self._types) > known:
            self._rows.append(rows)

    def _widen(self) -> None:
        """Take the types of all that was looked at: numbers of JSON may have a fraction later."""
        if self._rows:
            self._types.clear()
            self._note_types(*self._decoded(_joined(self._rows)))

    def _decoded(self, rows: pa.RecordBatch) -> tuple[Values, Values | None]:
        return self._patience.ask(lambda: self._decoders.decode(rows))

    def _note_types(self, values: Values, keys: Values | None) -> None:
        self._note("value", values)
        if keys is not None:
            self._note("key", keys)

    def _note(self, part: str, found: Values) -> None:
        """Of the values of one schema that are not alike, most count."""
        if found.groups:
            first = found.groups[0].schema_id
            same = [group for group in found.groups if group.schema_id == first]
            most = max(same, key=lambda group: len(group.rows))
            self._types.setdefault(part, most.values.type)
        for failure in found.failures[:1]:
            self._why.setdefault(part, failure.reason)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
