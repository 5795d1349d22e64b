"""`pylogtable kafka import` and `export`: copy topics from Kafka and to Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pylogtable.cli.command import Command, CommandGroup
from pylogtable.cli.kafka_values import (
    encode_options,
    parse_value_options,
    redrive,
    value_options,
    warn_of_dead_letters,
)
from pylogtable.cli.many_topics import (
    ExportsShown,
    ImportsShown,
    Outcomes,
    choice_of,
    located,
    one_topic,
    pattern_options,
)
from pylogtable.cli.messages import Speed, progress
from pylogtable.cli.metrics import Metrics, metrics_served
from pylogtable.cli.options import (
    POSITIVE,
    complete_settings,
    many,
    metrics_options,
    topics_argument,
)
from pylogtable.cli.output import answer, print_copied_groups
from pylogtable.cli.parse import parse_config, parse_settings, parse_time
from pylogtable.cli.session import Session
from pylogtable.cli.signals import noting_signals
from pylogtable.presentation import count_text, offsets_text, spans_text

if TYPE_CHECKING:
    from pylogtable import Store
    from pylogtable.kafka import ExportReport, ImportProgress, ImportReport

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
    pylogtable kafka import --bootstrap-servers broker:9092 --topic-pattern 'eu\\..*' --follow
"""


@click.group(
    cls=CommandGroup, short_help="Copy topics from and to Kafka.", examples=_IMPORT_EXAMPLES
)
def kafka() -> None:
    """Copy topics from Kafka, under the same partitions and offsets, and to Kafka. Needs `pip
    install 'pylogtable[kafka]'`."""


@kafka.command(
    "import", cls=Command, short_help="Import topics of Kafka.", examples=_IMPORT_EXAMPLES
)
@_bootstrap_option
@many("--topic", "topics", metavar="NAME", help="A topic of Kafka.")
@pattern_options
@click.option(
    "--name", metavar="NAME", help="The topic here, for a single topic.  [default: the same name]"
)
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
    "--config",
    "-c",
    metavar="NAME=VALUE",
    help="A setting of the new topic. It wins over Kafka's.",
    shell_complete=complete_settings,
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
    help="Commit after this many bytes of records. All topics share them.",
)
@value_options
@metrics_options
def import_(session: Session, /, **given: Any) -> None:
    """Import topics of Kafka: every record keeps its partition, offset, timestamp and headers.

    The first import creates the topic here. Later ones continue where it ends. Ctrl-C and SIGTERM
    end it after the running commit, and a repeat goes on. A topic that fails does not stop the
    others; the exit status is 1. With --follow it is tried again.
    """
    choice = given.pop("topics"), given.pop("topic_pattern"), given.pop("all_topics")
    topic = one_topic(*choice, given["name"], "--topic")
    store = session.open_store()
    when = given.pop("from_timestamp")
    parse_value_options(given)
    given |= {
        "from_timestamp": None if when is None else parse_time(when, "--from-timestamp"),
        "consumer_settings": parse_settings(given.pop("properties"), "--consumer-property"),
        "config": parse_config(given.pop("config")),
        "linger_ms": given.pop("linger") * 1000,
    }
    if topic is None:
        del given["name"]
        _import_many(session, store, choice_of(*choice), given)
    else:
        _import_one(session, store, topic, given)


def _import_one(session: Session, store: Store, topic: str, given: dict[str, Any]) -> None:
    from pylogtable.kafka import import_topic

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

        report = import_topic(store, topic, on_progress=tell, stop=signals.has_come, **given)
    _print_report(session, report)
    signals.raise_again()


def _import_many(
    session: Session, store: Store, choice: dict[str, Any], given: dict[str, Any]
) -> None:
    from pylogtable.kafka import import_topics

    with (
        noting_signals() as signals,
        metrics_served(session, store, "import", given) as metrics,
        progress("importing", line_seconds=session.seconds_between_lines(given)) as show_detail,
    ):
        shown = ImportsShown(show_detail, metrics)
        outcomes = Outcomes(
            session,
            metrics,
            lambda report: _print_report(session, report, report.topic),
            shown.note_failed,
        )
        done = import_topics(
            store,
            on_progress=shown.tell,
            on_end=outcomes.tell,
            stop=signals.has_come,
            **choice,
            **given,
        )
    outcomes.print_json(done.reports, done.errors)
    signals.raise_again()


@kafka.command(
    "export",
    cls=Command,
    short_help="Send topics to Kafka.",
    examples="""
        pylogtable kafka export orders --bootstrap-servers broker:9092
        pylogtable kafka export orders --bootstrap-servers broker:9092 --name orders-copy --follow
        pylogtable kafka export --all-topics --bootstrap-servers broker:9092 --follow
        pylogtable kafka export orders --bootstrap-servers broker:9092 --value-format avro \
            --schema-registry http://registry:8081
    """,
)
@topics_argument
@pattern_options
@_bootstrap_option
@click.option(
    "--name",
    metavar="NAME",
    help="The topic of Kafka, for a single topic.  [default: the same name]",
)
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
@encode_options
def export(session: Session, /, topics: tuple[str, ...], **given: Any) -> None:
    """Send the records of each TOPIC to a topic of Kafka that exists: keys, values, headers,
    partitions and timestamps.

    Kafka gives them new offsets. Delivery is at least once: what was sent when an export was
    killed is sent again. A topic that fails does not stop the others; the exit status is 1. With
    --follow it is tried again.
    """
    choice = topics, given.pop("topic_pattern"), given.pop("all_topics")
    topic = one_topic(*choice, given["name"], "the topics")
    given["producer_settings"] = parse_settings(given.pop("properties"), "--producer-property")
    parse_value_options(given)
    if topic is None:
        del given["name"]
        _export_many(session, choice, given)
    else:
        _export_one(session, topic, given)


def _export_one(session: Session, topic: str, given: dict[str, Any]) -> None:
    from pylogtable.kafka import export_topic

    opened = session.open_topic(topic)
    with noting_signals() as signals, progress(f"exporting {opened.name}") as show_detail:
        report = export_topic(
            opened,
            kafka_topic=given.pop("name"),
            on_progress=lambda records: show_detail(f"{records:,} records"),
            stop=signals.has_come,
            **given,
        )
    _print_sent(session, report)
    signals.raise_again()


def _export_many(
    session: Session, choice: tuple[tuple[str, ...], str | None, bool], given: dict[str, Any]
) -> None:
    from pylogtable.kafka import export_topics

    store, names = located(session, choice[0])
    with noting_signals() as signals, progress("exporting") as show_detail:
        shown = ExportsShown(show_detail)
        outcomes = Outcomes(
            session, Metrics(), lambda report: _print_sent(session, report), shown.note_failed
        )
        done = export_topics(
            store,
            on_progress=shown.tell,
            on_end=outcomes.tell,
            stop=signals.has_come,
            **choice_of(names, *choice[1:]),
            **given,
        )
    outcomes.print_json(done.reports, done.errors)
    signals.raise_again()


def _print_sent(session: Session, report: ExportReport) -> None:
    sent = f"{report.topic}: {count_text(report.records, 'record')} sent"
    answer(session, report, f"{sent}; group {report.group} at {offsets_text(report.positions)}")


kafka.add_command(redrive)


def _shown(at: ImportProgress, rate: float) -> str:
    lag = ", ".join(f"{number}: {offsets:,}" for number, offsets in at.lag.items() if offsets)
    dead = f", {count_text(at.dead_letters, 'dead letter')}" if at.dead_letters else ""
    return f"{at.records:,} records, {rate:,.0f} records/s, lag {lag or 'none'}{dead}"


def _print_report(session: Session, report: ImportReport, topic: str | None = None) -> None:
    done = f"{count_text(report.records, 'record')} in {count_text(report.commits, 'commit')}"
    of = f"; copy of {report.copy_of}" if report.copy_of else ""
    spans = spans_text(report.offsets.items(), "; ")
    answer(session, report, f"{report.topic}: {done}{spans}{of}")
    print_copied_groups(session, report.groups, report.left_out, topic)
    warn_of_dead_letters(session, report)
