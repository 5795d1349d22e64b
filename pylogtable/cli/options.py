"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import Any

import click

from pylogtable.cli.session import complete_topics


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

topic_argument = click.argument("topic", shell_complete=complete_topics)
topics_argument = click.argument(
    "topics", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topics
)
store_argument = click.argument("store", required=False)
partitions_option = click.option(
    "--partition", "partitions", metavar="LIST", help="Only these partitions, such as 0,2-4."
)
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Only show what would be done, and change nothing."
)
only_topics_option = click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    help="Only this topic. May be repeated.",
    shell_complete=complete_topics,
)
threads_option = click.option(
    "--threads",
    type=POSITIVE,
    default=2,
    show_default=True,
    help="Units of work at a time.",
)
protect_group_option = click.option(
    "--protect-group",
    "protect_groups",
    multiple=True,
    metavar="GROUP",
    help="Keep what this consumer group has not read. May be repeated.",
)
