"""The two shapes of records, and the names and words that their JSON uses.

A topic of Kafka's shape is written as kcat writes it; every other topic as objects of its columns.
Whatever `consume --output json` writes, `produce` reads back to the same record:

- bytes that are not UTF-8 are in base64, under the column's name and `_base64`; bytes inside of
  lists, maps and structs are always in base64
- NaN and infinity are the strings of `NON_FINITE`, as Spark's to_json writes them
- the key of a map is text: the key itself, or its JSON
"""

from __future__ import annotations

from typing import Any

LOG_COLUMNS = ("partition", "offset", "timestamp")
BASE64 = "_base64"
NON_FINITE = ("NaN", "Infinity", "-Infinity")

Row = dict[str, Any]
