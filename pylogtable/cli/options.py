"""Arguments and options that several commands have."""

from __future__ import annotations

import click

from pylogtable.cli.session import complete_topics

#: How many things to show. Arrow cannot count further.
COUNT = click.IntRange(0, 2**63 - 1)

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
    "--dry-run", is_flag=True, help="Only show what would be removed, and change nothing."
)
only_topics_option = click.option(
    "--topic",
    "topics",
    multiple=True,
    help="Only this topic. May be repeated.",
    shell_complete=complete_topics,
)
threads_option = click.option(
    "--threads",
    type=click.IntRange(1),
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
