"""The options `--key` and `--key-json`, and the keys that they name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from pylogtable import InvalidRequestError
from pylogtable.cli.from_json import column_of, decoded, json_value
from pylogtable.cli.options import many

if TYPE_CHECKING:
    from pylogtable import View

key_option = many("--key", "keys", metavar="KEY", help="A key.")
key_json_option = many(
    "--key-json",
    "key_objects",
    metavar="JSON",
    help="A key as an object of its columns, as consume prints them.",
)


def given_keys(view: View, texts: Sequence[str], objects: Sequence[str], otherwise: str) -> Any:
    """The keys that `--key` and `--key-json` name, as the library takes them; None without these.
    `otherwise` says what to do in a topic without a key."""
    import pyarrow as pa

    if not (texts or objects):
        return None
    if not view.key:
        raise InvalidRequestError(f"topic {view.name!r} has no key columns; {otherwise}")
    fields = [view.schema.field(name) for name in view.key]
    if texts and len(fields) > 1:
        raise click.BadParameter(
            f"the key has several columns, {', '.join(view.key)}; use --key-json",
            param_hint="--key",
        )
    try:
        rows = [{fields[0].name: json_value(fields[0], text)} for text in texts]
        rows += [_key_object(view, text) for text in objects]
        columns = [column_of(field, [row[field.name] for row in rows]) for field in fields]
    except ValueError as error:
        hint = "--key-json" if objects else "--key"
        raise click.BadParameter(str(error), param_hint=hint) from None
    return pa.Table.from_arrays(columns, names=list(view.key))


def _key_object(view: View, text: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not JSON: {error}") from None
    row = decoded(row, view.schema) if isinstance(row, dict) else {}
    if row.keys() != set(view.key):
        raise ValueError(f"{text} is not an object with the key's columns: {', '.join(view.key)}")
    return row
