"""Turns lines of text or JSON into columns of records. Errors name the line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

import pylogtable
from pylogtable import InvalidRequestError
from pylogtable.cli.from_json import kafka_columns, table_columns
from pylogtable.cli.parse import unescape
from pylogtable.cli.stdin_batches import LineBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from pylogtable import View

Columns = dict[str, "pa.Array"]

# What a wrong line can raise on its way to a record.
_WRONG = (ValueError, TypeError, ArithmeticError, msgspec.MsgspecError)


class LineParser(Protocol):
    """Turns lines into columns."""

    def columns(self, batch: LineBatch) -> Columns:
        """The columns of the records; raises `InvalidRequestError` that names the wrong line."""
        ...

    def line_of(self, batch: LineBatch, row: int) -> int:
        """The number of the line that became this row of `columns`."""
        ...


class TextLines:
    """Each line is a value, or a key and a value with a separator between them."""

    def __init__(
        self,
        schema: pa.Schema,
        separator: str | None,
        null_value: str | None,
        headers: Sequence[tuple[str, str]],
    ) -> None:
        self._schema = schema
        self._separator = None if separator is None else unescape(separator)
        self._null = None if null_value is None else null_value.encode()
        self._headers = [{"key": name, "value": value.encode()} for name, value in headers]

    def columns(self, batch: LineBatch) -> Columns:
        """See `LineParser`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        values = pa.array(batch.lines, pa.binary())
        columns: Columns = {}
        if self._separator is not None:
            parts = pc.split_pattern(values, self._separator, max_splits=1)
            whole = pc.equal(pc.list_value_length(parts), 2)
            if not pc.all(whole).as_py():
                line = self.line_of(batch, pc.index(whole, False).as_py())
                separator = self._separator.decode(errors="replace")
                raise InvalidRequestError(f"line {line} has no {separator!r} in it")
            columns["key"] = pc.list_element(parts, 0)
            values = pc.list_element(parts, 1)
        if self._null is not None:
            is_null = pc.equal(values, self._null)
            values = pc.if_else(is_null, pa.scalar(None, pa.binary()), values)
        columns["value"] = values
        if self._headers:
            every = [self._headers] * len(values)
            columns["headers"] = pa.array(every, self._schema.field("headers").type)
        return columns

    def line_of(self, batch: LineBatch, row: int) -> int:
        """See `LineParser`."""
        return batch.first + row


class JsonLines:
    """Each line is a JSON object. Blank lines are skipped."""

    def __init__(self, view: View) -> None:
        self._schema = view.schema
        self._is_kafka_shaped = pylogtable.is_kafka_shaped(view.schema)
        self._new_names = {old: name for name, old in view.stored_names.items()}

    def columns(self, batch: LineBatch) -> Columns:
        """See `LineParser`."""
        decode = msgspec.json.Decoder().decode
        try:
            # Line by line: a decoder of many lines also takes an object that spans two of them.
            rows = [decode(line) for line in batch.lines if line.strip()]
            return self._columns_of(rows) if rows else {}
        except _WRONG as error:
            raise InvalidRequestError(self._first_wrong(batch, error)) from None

    def line_of(self, batch: LineBatch, row: int) -> int:
        """See `LineParser`."""
        numbered = enumerate(batch.lines, batch.first)
        return [number for number, line in numbered if line.strip()][row]

    def _columns_of(self, rows: list[Any]) -> Columns:
        if not all(isinstance(row, dict) for row in rows):
            raise ValueError("it is not a JSON object")
        if self._is_kafka_shaped:
            return kafka_columns(rows, self._schema)
        return table_columns(rows, self._schema, self._new_names)

    def _first_wrong(self, batch: LineBatch, error: Exception) -> str:
        """Parse again one line at a time, to find the wrong one."""
        for number, line in enumerate(batch.lines, batch.first):
            wrong = self._error_of(line)
            if wrong is not None:
                return f"line {number}: {wrong}"
        return f"lines {batch.first} to {batch.last}: {error}"

    def _error_of(self, line: bytes) -> Exception | None:
        try:
            if line.strip():
                self._columns_of([msgspec.json.decode(line)])
        except _WRONG as wrong:
            return wrong
        return None
