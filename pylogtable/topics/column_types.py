"""Columns as users give them: names with Arrow types, or with type names as in Spark SQL. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn, TypeAlias

import pyarrow as pa

from pylogtable.arguments import check_mapping, check_text
from pylogtable.errors import InvalidRequestError, SchemaMismatchError
from pylogtable.format.model import Field
from pylogtable.format.schema import PLAIN_NAMES, SQL_INTEGERS, WireType, from_arrow, to_arrow

#: A type as a user gives it.
GivenType: TypeAlias = pa.DataType | str

# Names of Spark SQL for types that have another name in the format.
_SQL_NAMES = {
    **SQL_INTEGERS,
    "real": "float",
    "timestamp_ltz": "timestamp",
    "decimal": "decimal(10,0)",
}
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|[^\s<>(),:`]+|[<>(),:])")
_MOST_LEVELS = 100


def column_type(name: str | dict[str, Any]) -> pa.DataType:
    """The Arrow type of a type name of Spark SQL or of the format. A nested type may also be given
    as the format stores it, as a dict or as JSON.

        >>> column_type("bigint")
        DataType(int64)
        >>> column_type("array<struct<id:int, note:string>>")
        ListType(list<element: struct<id: int32, note: string>>)
    """
    if not isinstance(name, str):
        return to_arrow(name)
    if name.lstrip().startswith("{"):
        try:
            return to_arrow(json.loads(name))
        except (ValueError, RecursionError) as error:
            if isinstance(error, InvalidRequestError):
                raise
            raise InvalidRequestError(f"column type {name!r} is not JSON: {error}") from None
    return to_arrow(_TypeName(name).parse())


def column_types(name: str, given: object) -> dict[str, pa.DataType]:
    """The columns and Arrow types that a user gave in the argument `name`, checked."""
    check_mapping(name, given, "{'amount': 'double'}, or a pyarrow.Schema")
    assert isinstance(given, Mapping)
    found = {}
    for column, kind in given.items():
        check_text(f"a column of {name}", column)
        if not isinstance(kind, pa.DataType | str):
            raise InvalidRequestError(
                f"column {column!r} must have a type such as 'bigint' or pyarrow.int64(), not "
                f"{kind!r}"
            )
        found[column] = column_type(kind) if isinstance(kind, str) else kind
    return found


def make_fields(schema: pa.Schema | Mapping[str, GivenType]) -> tuple[Field, ...]:
    """The columns of a schema that a user gave."""
    if not isinstance(schema, pa.Schema):
        schema = pa.schema(list(column_types("schema", schema).items()))
    fields = []
    for column in schema:
        try:
            wire = from_arrow(column.type)
        except SchemaMismatchError as error:
            raise SchemaMismatchError(f"column {column.name!r}: {error}") from None
        fields.append(Field(name=column.name, type=wire, nullable=column.nullable))
    return tuple(fields)


class _TypeName:
    """Parses one type name: `bigint`, `decimal(10,2)`, `map<string,array<int>>`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        self._at = 0
        place, end = 0, len(text.rstrip())
        while place < end:
            token = _TOKEN.match(text, place)
            if token is None:
                self._refuse()
            self._tokens.append(token[1])
            place = token.end()

    def parse(self) -> WireType:
        wire = self._type(_MOST_LEVELS)
        if self._at != len(self._tokens):
            self._refuse()
        return wire

    def _type(self, levels: int) -> WireType:
        if not levels:
            self._refuse()
        word = self._next().lower()
        if word == "array":
            (element,) = self._inside(1, levels)
            return {"type": "array", "elementType": element, "containsNull": True}
        if word == "map":
            key, value = self._inside(2, levels)
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        if word == "struct":
            return {"type": "struct", "fields": self._fields(levels)}
        if word == "decimal" and self._peek() == "(":
            self._expect("(")
            digits, scale = self._next(), "0"
            if self._peek() == ",":
                self._expect(",")
                scale = self._next()
            self._expect(")")
            return f"decimal({digits},{scale})"
        plain = _SQL_NAMES.get(word, word)
        if plain not in PLAIN_NAMES and plain not in _SQL_NAMES.values():
            self._refuse()
        return plain

    def _inside(self, count: int, levels: int) -> list[WireType]:
        self._expect("<")
        types = [self._type(levels - 1)]
        for _ in range(count - 1):
            self._expect(",")
            types.append(self._type(levels - 1))
        self._expect(">")
        return types

    def _fields(self, levels: int) -> list[dict[str, Any]]:
        self._expect("<")
        fields = [self._field(levels)]
        while self._peek() == ",":
            self._expect(",")
            fields.append(self._field(levels))
        self._expect(">")
        return fields

    def _field(self, levels: int) -> dict[str, Any]:
        name = self._next()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        if self._peek() == ":":
            self._expect(":")
        wire = self._type(levels - 1)
        is_required = self._peek().lower() == "not"
        if is_required:
            self._expect("not")
            self._expect("null")
        return {"name": name, "type": wire, "nullable": not is_required}

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token or token in "<>(),:":
            self._refuse()
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if self._peek().lower() != token:
            self._refuse()
        self._at += 1

    def _refuse(self) -> NoReturn:
        sql = [name for name in _SQL_NAMES if name != "decimal"]
        raise InvalidRequestError(
            f"unknown column type {self._text!r}; the types are {', '.join(PLAIN_NAMES)} (in SQL "
            f"also {', '.join(sql)}), decimal(p,s), array<type>, map<type,type> and "
            "struct<name:type,…>"
        )
