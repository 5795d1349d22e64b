"""`pylogtable erase`: remove the records of keys, or those that have certain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import reduce
from math import isnan
from typing import TYPE_CHECKING, Any

import click

from pylogtable.arguments import did_you_mean
from pylogtable.cli.command import Command
from pylogtable.cli.from_json import column_of, json_value
from pylogtable.cli.given_keys import given_keys, key_json_option, key_option
from pylogtable.cli.messages import confirm, progress
from pylogtable.cli.options import dry_run_option, threads_option, topic_argument, yes_option
from pylogtable.cli.output import answer
from pylogtable.cli.parse import parse_pair
from pylogtable.cli.session import Session
from pylogtable.presentation import count_text

if TYPE_CHECKING:
    import pyarrow as pa

    from pylogtable import View


@click.command(
    cls=Command,
    short_help="Remove the records of keys, or with certain values.",
    examples="""
        pylogtable erase users --key user-7 --key user-8 --dry-run
        pylogtable erase orders --key-json '{"tenant": "acme", "order_id": 7}' --yes
        pylogtable erase orders --where customer=7 --where country=DE --yes
    """,
    destroys=True,
)
@topic_argument
@key_option
@key_json_option
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="The records with this value. If repeated, those for which all are true.",
)
@threads_option
@yes_option
@dry_run_option
def erase(
    session: Session,
    topic: str,
    keys: tuple[str, ...],
    key_objects: tuple[str, ...],
    conditions: tuple[str, ...],
    threads: int,
    yes: bool,
    dry_run: bool,
) -> None:
    """Remove all records of TOPIC that have one of these keys, or these values.

    Other records keep their offsets. Older versions still have the records until a vacuum removes
    their files. The answer says which versions, and from when on.
    """
    if bool(keys or key_objects) == bool(conditions):
        raise click.UsageError("give --key or --key-json, or --where, and not both")
    opened = session.open_topic(topic)
    view = opened.at()
    what: dict[str, Any]
    if conditions:
        what = {"where": _condition(view, conditions)}
    else:
        what = {
            "keys": given_keys(view, keys, key_objects, "use --where, as in --where customer=7")
        }
    if not (dry_run or yes):
        with progress(f"searching {opened.name}"):
            found = opened.erase(**what, dry_run=True, threads=threads)
        records = count_text(found.records_erased, "record")
        confirm(f"remove {records} of {opened.name} for good", yes)
    with progress(f"erasing records of {opened.name}"):
        report = opened.erase(**what, dry_run=dry_run, threads=threads)
    answer(session, {"topic": opened.name, **asdict(report)}, f"{opened.name}: {report}")


def _condition(view: View, conditions: Sequence[str]) -> pa.compute.Expression:
    from operator import and_

    import pyarrow.compute as pc

    equal = []
    for condition in conditions:
        name, text = parse_pair(condition, "--where", "COLUMN=VALUE, such as customer=7")
        if name not in view.schema.names:
            raise click.BadParameter(
                f"there is no column {name!r}; {did_you_mean(name, view.schema.names)}",
                param_hint="--where",
            )
        field = view.schema.field(name)
        try:
            value = column_of(field, [json_value(field, text)])[0]
            _refuse_equal_to_nothing(name, value.as_py())
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--where") from None
        equal.append(pc.field(name) == value)
    return reduce(and_, equal)


def _refuse_equal_to_nothing(name: str, value: Any) -> None:
    """Raise for null and NaN: no value equals them, so that nothing would be erased."""
    if value is None:
        shown, test = "null", "is_null"
    elif isinstance(value, float) and isnan(value):
        shown, test = "NaN", "is_nan"
    else:
        return
    raise ValueError(
        f"no value of {name!r} equals {shown}, so nothing would be erased. In Python, use "
        f"topic.erase(where=pyarrow.compute.{test}(pyarrow.compute.field({name!r})))"
    )
