"""Arguments and options: those that every command has, and those that several have.

An option that takes one value is refused if it is given with several. Click would take the last
one, and say nothing about the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

import pylogtable
from pylogtable import LogTableError
from pylogtable.cli.session import STORE_VARIABLE, current_session

if TYPE_CHECKING:
    from pylogtable import Store

Function = TypeVar("Function", bound=Callable[..., Any])


class WholeNumber(click.types.IntParamType):
    """A whole number from `least` to `most`. Unlike click's IntRange it leaves the bounds out of
    the help."""

    def __init__(self, least: int, most: int = 2**63 - 1) -> None:
        self._least = least
        self._most = most

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """What the help shows behind the option."""
        return "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the number. A value outside of the bounds is a usage error."""
        number = super().convert(value, param, ctx)
        if not self._least <= number <= self._most:
            bound = f"at least {self._least}" if number < self._least else f"at most {self._most}"
            self.fail(f"{value} must be {bound}", param, ctx)
        return number


COUNT, POSITIVE = WholeNumber(0), WholeNumber(1)


def _complete_with(
    names: Callable[[Store], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """A completion of names in the store; it offers nothing if the store cannot be read."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        try:
            found = names(current_session(context).open_store())
        except (LogTableError, click.UsageError):
            return []
        return [name for name in found if name.startswith(incomplete)]

    return complete


complete_topics = _complete_with(lambda store: store.topics())
complete_groups = _complete_with(lambda store: store.groups())


def complete_words(*words: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """A completion of these words."""
    return lambda _context, _param, incomplete: [w for w in words if w.startswith(incomplete)]


def complete_settings(_: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """A completion of the settings of a topic. `--unset` takes the names alone."""
    end = "" if "--unset" in param.opts else "="
    return [f"{name}{end}" for name in pylogtable.TOPIC_CONFIG_KEYS if name.startswith(incomplete)]


def complete_partitions(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """A completion of the partitions of the topic that is given before; nothing for several."""
    topic = context.params.get("topic")
    if not isinstance(topic, str):
        return []
    try:
        numbers = current_session(context).open_topic(topic).at().end_offsets
    except (LogTableError, click.UsageError):
        return []
    *before, last = incomplete.rpartition(",")
    return [f"{''.join(before)}{n}" for n in map(str, numbers) if n.startswith(last)]


complete_start = complete_words("earliest", "latest", "stored", "beginning", "end")
complete_end = complete_words("earliest", "latest", "beginning", "end")


def many(*names: str, metavar: str, help: str, **more: Any) -> Callable[[Function], Function]:
    """An option that may be repeated."""
    told = f"{help} May be repeated."
    return click.option(*names, multiple=True, metavar=metavar, help=told, **more)


topic_argument = click.argument("topic", shell_complete=complete_topics)
topics_argument = click.argument(
    "topics", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topics
)
store_argument = click.argument("store", required=False)
partitions_option = click.option(
    "--partition",
    "partitions",
    metavar="LIST",
    help="Only these partitions, such as 0,2-4.",
    shell_complete=complete_partitions,
)
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Only show what would be done, and change nothing."
)
only_topics_option = many(
    "--topic", "topics", metavar="TOPIC", help="Only this topic.", shell_complete=complete_topics
)
threads_option = click.option(
    "--threads", type=POSITIVE, default=2, show_default=True, help="Units of work at a time."
)
protect_group_option = many(
    "--protect-group",
    "protect_groups",
    metavar="GROUP",
    help="Keep what this consumer group has not read.",
)


def metrics_options(command: Function) -> Function:
    """The options of a command that serves metrics while it works."""
    port = click.option(
        "--metrics-port",
        type=WholeNumber(0, 65_535),
        help="Serve metrics to Prometheus at this port; 0 is any free one. Needs pip install "
        "'pylogtable[metrics]'.",
    )
    host = click.option(
        "--metrics-host",
        metavar="ADDRESS",
        help="Serve them at this address only, such as 127.0.0.1.  [default: all of the machine]",
    )
    per_partition = click.option(
        "--metrics-per-partition",
        is_flag=True,
        help="Serve those of each partition as well: so many time series for each topic.",
    )
    return port(host(per_partition(command)))


def shared_options() -> list[click.Parameter]:
    """The options that every command has, before or after its name."""
    return [
        click.Option(
            ["--store", "-s", "store_option"],
            metavar="URL",
            help=f"Path or URL of the store.  [env: {STORE_VARIABLE}]",
            expose_value=False,
            callback=_save_as("store"),
        ),
        click.Option(
            ["--storage-options"],
            metavar="JSON",
            help="JSON object for the client of the store, such as its endpoint_url.",
            expose_value=False,
            callback=_save_as("storage_options"),
        ),
        click.Option(
            ["--output"],
            type=click.Choice(["text", "json"]),
            help="text for people, json for programs.  [default: text]",
            expose_value=False,
            callback=_save_as("output"),
        ),
        click.Option(
            ["--log-level"],
            type=click.Choice(["debug", "info", "warning"]),
            help="info for what is done, debug for each request too.  [default: warning]",
            expose_value=False,
            callback=_set_log_level,
        ),
        click.Option(
            ["--log-format"],
            type=click.Choice(["text", "json"]),
            help="json makes an object of each line on standard error.  [default: text]",
            expose_value=False,
            callback=_save_as("log_format"),
        ),
        click.Option(
            ["--verbose"],
            is_flag=True,
            default=None,
            help="Show the traceback of an error.",
            expose_value=False,
            callback=_save_as("verbose"),
        ),
    ]


def _save_as(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Saves an option. It may be given before and after the name of a command, but not with
    different values: one of them would be ignored."""

    def callback(context: click.Context, option: click.Parameter, value: Any) -> None:
        if value is None:
            return
        session = current_session(context)
        earlier = session.given.setdefault(name, value)
        if earlier != value:
            raise click.UsageError(repeated(option, [earlier, value]), context)
        setattr(session, name, value)

    return callback


def _set_log_level(context: click.Context, option: click.Parameter, value: Any) -> None:
    _save_as("log_level")(context, option, value)
    if value is not None:
        logging.getLogger("pylogtable").setLevel(value.upper())


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
