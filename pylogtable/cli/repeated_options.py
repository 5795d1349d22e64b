"""Refuses an option that takes one value and is given with several. Click would take the last one,
and say nothing about the others."""

from __future__ import annotations

from collections.abc import Sequence

import click


def refuse_repeated_options(command: click.Command, ctx: click.Context, args: list[str]) -> None:
    """Raise if an option of the command has different values in these arguments, and takes one."""
    parser = command.make_parser(ctx)
    options = (one for one in command.get_params(ctx) if isinstance(one, click.Option))
    single = [option for option in options if _takes_one_value(option)]
    for option in single:
        # The same options again, with a list of values. The parser takes the later definition.
        parser.add_option(option, option.opts, dest=option.name, action="append")
    given, _, _ = parser.parse_args(args=list(args))
    for option in single:
        values = given.get(option.name)
        if isinstance(values, list) and len(set(values)) > 1:
            raise click.UsageError(repeated(option, values), ctx)


def repeated(option: click.Parameter, values: Sequence[object]) -> str:
    """The message about an option with several values. Options of stores may hold secrets, so their
    values are not shown."""
    name = max(option.opts, key=len)
    is_secret = name.endswith("storage-options")
    shown = "" if is_secret else f": {', '.join(map(str, values))}"
    return (
        f"{name} takes one value, and {len(values)} are given{shown}. Give one of them, or run the "
        "command once for each"
    )


def _takes_one_value(option: click.Option) -> bool:
    """False for a flag, which means the same if it is given twice."""
    return option.nargs == 1 and not (option.is_flag or option.count or option.multiple)
