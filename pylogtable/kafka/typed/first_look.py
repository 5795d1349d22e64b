"""The first look at a topic of Kafka: which columns its copy is to have.

It reads until a value, and a key if keys are decoded, has shown its schema. Nothing is kept: the
import reads these records again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from pylogtable.errors import InvalidRequestError
from pylogtable.kafka.client import StoppedError
from pylogtable.kafka.import_report import ImportOptions
from pylogtable.kafka.rows import last_places, rows_of
from pylogtable.kafka.source import KafkaSource
from pylogtable.kafka.typed.columns_plan import new_columns
from pylogtable.kafka.typed.typed_import import TypedImport
from pylogtable.kafka.typed.typed_rows import Values
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
        self._decoders = typed.decoders
        self._patience = typed.patience
        self._keep_raw = typed.options.keep_raw
        self._kafka_topic = kafka_topic
        #: The types of the first key and of the first value. That of a record is a struct.
        self._types: dict[str, pa.DataType] = {}
        self._records = 0
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
        return new_columns(key, value, keep_raw=self._keep_raw)

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
        reached, heard = dict(starts), until.now()
        while not self._is_enough(reached, until):
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

    def _is_enough(self, reached: Mapping[int, int], until: Looking) -> bool:
        if self._knows_all():
            return True
        if not all(reached[number] >= end for number, end in until.ends.items()):
            return False
        if self._records or not until.options.follow:
            return True
        self._ask_registry()  # an import that follows waits for one of both
        return self._knows_all()

    def _take(self, rows: pa.RecordBatch) -> None:
        values, keys = self._patience.ask(lambda: self._decoders.decode(rows))
        self._records += rows.num_rows
        self._note("value", values)
        if keys is not None:
            self._note("key", keys)

    def _note(self, part: str, found: Values) -> None:
        for group in found.groups[:1]:
            self._types.setdefault(part, group.values.type)
        for failure in found.failures[:1]:
            self._why.setdefault(part, failure.reason)
