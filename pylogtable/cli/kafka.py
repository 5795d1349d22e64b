"""`pylogtable kafka import` and `export`: copy topics from Kafka and to Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pylogtable.cli.command import Command, CommandGroup
from pylogtable.cli.kafka_values import (
    parse_value_options,
    redrive,
    value_options,
    warn_of_dead_letters,
)
from pylogtable.cli.messages import Speed, progress
from pylogtable.cli.metrics import metrics_served
from pylogtable.cli.options import POSITIVE, many, metrics_options, topic_argument
from pylogtable.cli.output import answer, print_copied_groups
from pylogtable.cli.parse import parse_config, parse_settings, parse_time
from pylogtable.cli.session import Session
from pylogtable.cli.signals import noting_signals
from pylogtable.presentation import count_text, offsets_text, spans_text

if TYPE_CHECKING:
    from pylogtable.kafka import ImportProgress, ImportReport

_bootstrap_option = click.option(
    "--bootstrap-servers", required=True, metavar="HOST:PORT", help="Brokers to ask first."
)
_follow_option = click.option(
    "--follow", is_flag=True, help="Go on with new records until Ctrl-C or SIGTERM."
)
_IMPORT_EXAMPLES = """
    pylogtable kafka import --bootstrap-servers broker:9092 --topic orders
    pylogtable kafka import --bootstrap-servers broker:9092 --topic orders --follow --groups
    pylogtable kafka import --bootstrap-servers broker:9092 --topic orders --name orders-copy
    pylogtable kafka import --bootstrap-servers broker:9092 --topic orders --value-format avro \
        --schema-registry http://registry:8081
"""


@click.group(
    cls=CommandGroup, short_help="Copy topics from and to Kafka.", examples=_IMPORT_EXAMPLES
)
def kafka() -> None:
    """Copy topics from Kafka, under the same partitions and offsets, and to Kafka. Needs `pip
    install 'pylogtable[kafka]'`."""


@kafka.command(
    "import", cls=Command, short_help="Import a topic of Kafka.", examples=_IMPORT_EXAMPLES
)
@_bootstrap_option
@click.option("--topic", required=True, metavar="NAME", help="The topic of Kafka. One at a time.")
@click.option("--name", metavar="NAME", help="The topic here.  [default: the same name]")
@_follow_option
@click.option(
    "--from-timestamp",
    metavar="TIME",
    help="Begin with the first record at or after this time. Only for the first import.",
)
@click.option("--groups", is_flag=True, help="Also copy the committed offsets of consumer groups.")
@click.option(
    "--allow-gaps",
    is_flag=True,
    help="Go on if Kafka has removed records before they were imported.",
)
@many(
    "--config", "-c", metavar="NAME=VALUE", help="A setting of the new topic. It wins over Kafka's."
)
@click.option(
    "--no-copy-settings",
    "copy_settings",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Do not ask Kafka for the settings of the topic.",
)
@click.option(
    "--guard",
    is_flag=True,
    help="Let nobody else append to a copy that an earlier release has made. New copies are always "
    "guarded, until `topics promote`.",
)
@many(
    "--consumer-property",
    "properties",
    metavar="NAME=VALUE",
    help="A setting of librdkafka, such as security.protocol=SSL.",
)
@click.option(
    "--linger",
    type=click.FloatRange(0.001),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Commit after this time.",
)
@click.option(
    "--batch-bytes",
    type=POSITIVE,
    default=256 << 20,
    show_default=True,
    help="Commit after this many bytes of records.",
)
@value_options
@metrics_options
def import_(session: Session, /, **given: Any) -> None:
    """Import a topic of Kafka: every record keeps its partition, offset, timestamp and headers.

    The first import creates the topic here. Later ones continue where it ends. Ctrl-C and SIGTERM
    end it after the running commit, and a repeat goes on.
    """
    from pylogtable.kafka import import_topic

    store = session.open_store()
    when = given.pop("from_timestamp")
    properties = parse_settings(given.pop("properties"), "--consumer-property")
    config = parse_config(given.pop("config"))
    parse_value_options(given)
    linger = given.pop("linger")
    topic = given.pop("topic")
    speed = Speed()
    shown = progress(f"importing {topic}", line_seconds=session.seconds_between_lines(given))
    with (
        noting_signals() as signals,
        metrics_served(session, store, "import", given) as metrics,
        shown as show_detail,
    ):
        count = metrics.progress_of("import", given["name"] or topic)

        def tell(at: ImportProgress) -> None:
            show_detail(_shown(at, speed.at(at.seconds, at.records)), at.seconds)
            count(at)

        report = import_topic(
            store,
            topic,
            from_timestamp=None if when is None else parse_time(when, "--from-timestamp"),
            consumer_settings=properties,
            config=config,
            linger_ms=linger * 1000,
            on_progress=tell,
            stop=signals.has_come,
            **given,
        )
    _print_report(session, report)
    warn_of_dead_letters(session, report)
    signals.raise_again()


@kafka.command(
    "export",
    cls=Command,
    short_help="Send a topic to Kafka.",
    examples="""
        pylogtable kafka export orders --bootstrap-servers broker:9092
        pylogtable kafka export orders --bootstrap-servers broker:9092 --name orders-copy --follow
    """,
)
@topic_argument
@_bootstrap_option
@click.option("--name", metavar="NAME", help="The topic of Kafka.  [default: the same name]")
@click.option(
    "--group",
    metavar="GROUP",
    help="The consumer group that remembers how far the export is. Another cluster needs another "
    "one.  [default: kafka-export- and the topic of Kafka]",
)
@_follow_option
@many(
    "--producer-property",
    "properties",
    metavar="NAME=VALUE",
    help="A setting of librdkafka, such as security.protocol=SSL.",
)
def export(session: Session, /, topic: str, **given: Any) -> None:
    """Send the records of TOPIC to a topic of Kafka that exists: keys, values, headers, partitions
    and timestamps.

    Kafka gives them new offsets. Delivery is at least once: what was sent when an export was
    killed is sent again.
    """
    from pylogtable.kafka import export_topic

    opened = session.open_topic(topic)
    properties = parse_settings(given.pop("properties"), "--producer-property")
    with noting_signals() as signals, progress(f"exporting {opened.name}") as show_detail:
        report = export_topic(
            opened,
            kafka_topic=given.pop("name"),
            producer_settings=properties,
            on_progress=lambda records: show_detail(f"{records:,} records"),
            stop=signals.has_come,
            **given,
        )
    sent = f"{report.topic}: {count_text(report.records, 'record')} sent"
    answer(session, report, f"{sent}; group {report.group} at {offsets_text(report.positions)}")
    signals.raise_again()


kafka.add_command(redrive)


def _shown(at: ImportProgress, rate: float) -> str:
    lag = ", ".join(f"{number}: {offsets:,}" for number, offsets in at.lag.items() if offsets)
    dead = f", {count_text(at.dead_letters, 'dead letter')}" if at.dead_letters else ""
    return f"{at.records:,} records, {rate:,.0f} records/s, lag {lag or 'none'}{dead}"


def _print_report(session: Session, report: ImportReport) -> None:
    done = f"{count_text(report.records, 'record')} in {count_text(report.commits, 'commit')}"
    of = f"; copy of {report.copy_of}" if report.copy_of else ""
    spans = spans_text(report.offsets.items(), "; ")
    answer(session, report, f"{report.topic}: {done}{spans}{of}")
    print_copied_groups(session, report.groups, report.left_out)
