"""Column types as Spark SQL writes them, for messages. Pure."""

from __future__ import annotations

from typing import Any

#: Integer types: their names in Spark SQL, and in the format.
SQL_INTEGERS = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}

_SQL_NAMES = {name: sql for sql, name in SQL_INTEGERS.items()}


def type_text(wire: str | dict[str, Any]) -> str:
    """A stored type as Spark SQL writes it.

    >>> type_text({"type": "array", "elementType": "long"})
    'array<bigint>'
    """
    if isinstance(wire, str):
        return _SQL_NAMES.get(wire, wire)
    if wire["type"] == "array":
        return f"array<{type_text(wire['elementType'])}>"
    if wire["type"] == "map":
        return f"map<{type_text(wire['keyType'])},{type_text(wire['valueType'])}>"
    fields = (f"{field['name']}:{type_text(field['type'])}" for field in wire["fields"])
    return f"struct<{','.join(fields)}>"
