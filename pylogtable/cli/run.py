"""`pylogtable run`: one process that keeps a store in shape, and its published tables fresh."""

from __future__ import annotations

import logging
import math
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from pylogtable import InvalidRequestError, LogTableError, TopicNotFoundError
from pylogtable.cli.command import Command
from pylogtable.cli.messages import (
    ShowDetail,
    asks_about_settings,
    confirm,
    note,
    progress,
    warn,
)
from pylogtable.cli.metrics import Metrics, metrics_served
from pylogtable.cli.options import (
    complete_topics,
    dry_run_option,
    many,
    metrics_options,
    protect_group_option,
    store_argument,
    threads_option,
    yes_option,
)
from pylogtable.cli.output import print_json_line
from pylogtable.cli.parse import parse_duration, parse_settings
from pylogtable.cli.run_once import run_once
from pylogtable.cli.session import Session
from pylogtable.cli.signals import noting_signals
from pylogtable.presentation import count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pylogtable import Store
    from pylogtable.kafka import ImportProgress
    from pylogtable.run import JobRun


_logger = logging.getLogger(__name__)


@click.command(
    cls=Command,
    short_help="Keep a store in shape, and its published tables fresh.",
    examples="""
        pylogtable run s3://bucket/logs
        pylogtable run ./logs --every 2s --topics orders,clicks --jobs publication,merge
        pylogtable run s3://a/logs --mirror-to s3://b/logs --output json
    """,
    destroys=True,
)
@store_argument
@many(
    "--topics",
    metavar="LIST",
    help="Only these topics, separated by commas.  [default: all, new ones too]",
    shell_complete=complete_topics,
)
@many(
    "--jobs",
    metavar="LIST",
    help="Only these jobs, separated by commas: retention, compaction, merge, publication, vacuum, "
    "group_expiry, mirror.",
)
@click.option(
    "--every",
    metavar="DURATION",
    default="1s",
    show_default=True,
    help="How often each topic is looked at. Published topics are looked at more often if their "
    "publish.max.lag.ms needs it, and quiet ones less often.",
)
@click.option("--once", is_flag=True, help="Do what is due now and end, as maintain does.")
@click.option("--mirror-to", metavar="URL", help="Mirror the topics to this store.")
@click.option(
    "--mirror-storage-options",
    metavar="JSON",
    help="The same as --storage-options, for the store of --mirror-to.",
)
@click.option("--mirror-groups", is_flag=True, help="Also copy the positions of consumer groups.")
@many("--kafka-topic", "kafka_topics", metavar="NAME", help="Import this topic of Kafka, as bytes.")
@click.option("--bootstrap-servers", metavar="HOST:PORT", help="Kafka's brokers to ask first.")
@many(
    "--consumer-property",
    "properties",
    metavar="NAME=VALUE",
    help="A setting of librdkafka, such as security.protocol=SSL.",
)
@protect_group_option
@dry_run_option
@threads_option
@yes_option
@metrics_options
def run(
    session: Session,
    /,
    store: str | None,
    topics: tuple[str, ...],
    jobs: tuple[str, ...],
    every: str,
    once: bool,
    mirror_to: str | None,
    mirror_storage_options: str | None,
    mirror_groups: bool,
    kafka_topics: tuple[str, ...],
    bootstrap_servers: str | None,
    properties: tuple[str, ...],
    protect_groups: tuple[str, ...],
    dry_run: bool,
    threads: int,
    yes: bool,
    **served: Any,
) -> None:
    """Look after the topics of STORE until Ctrl-C or SIGTERM, and end after the running commits.

    Published tables follow their topics, small segments are merged, and retention, compaction and
    vacuum run as the settings of each topic say. Any number of these processes may run: they share
    the topics. A process that is killed leaves nothing to recover.
    """
    from pylogtable.engine import protected_groups
    from pylogtable.run import KafkaImports, Loop, RunOptions

    if bool(kafka_topics) != (bootstrap_servers is not None):
        raise click.UsageError("--kafka-topic and --bootstrap-servers belong together")
    if properties and bootstrap_servers is None:
        raise click.UsageError("--consumer-property is for imports: give --bootstrap-servers")
    if mirror_to is None and (mirror_groups or mirror_storage_options is not None):
        raise click.UsageError("--mirror-groups and --mirror-storage-options need --mirror-to")
    opened = session.open_store(store)
    shown = _Shown(session)
    imports = None
    if bootstrap_servers is not None:
        settings = parse_settings(properties, "--consumer-property")
        imports = KafkaImports(
            bootstrap_servers, kafka_topics, settings, progress_of=shown.progress_of
        )
    copies = None
    if mirror_to is not None:
        option = "--mirror-storage-options"
        copies = session.open_other_store(mirror_to, mirror_storage_options, option)
        if copies.url == opened.url:
            raise click.UsageError(f"--mirror-to {mirror_to} is the store itself")
    try:
        options = RunOptions(
            topics=_listed(topics),
            jobs=_listed(jobs),
            every_seconds=parse_duration(every, "--every").total_seconds(),
            protect_groups=protect_groups,
            threads=threads,
            mirror_to=copies,
            mirror_groups=mirror_groups,
            imports=imports,
            on_job=shown.job_ran,
        )
    except InvalidRequestError as error:
        raise click.UsageError(str(error)) from None
    _check_topics(opened, [name for name in options.topics or () if name not in kafka_topics])
    if once or dry_run:
        if imports is not None:
            raise click.UsageError("imports follow Kafka: use 'kafka import' with --once")
        if served["metrics_port"] is not None:
            raise click.UsageError(
                "--metrics-port is for a program that goes on; 'pylogtable metrics' prints once"
            )
        run_once(session, opened, options, dry_run=dry_run, yes=yes)
        return
    if protect_groups:  # a group that no topic has is most likely misspelt
        protected_groups(opened, list(protect_groups), options.topics or opened.topics())
    if asks_about_settings(yes):
        what = (
            f"look after {opened.url}, and remove records and files for good, as the settings say"
        )
        confirm(what, yes)
    names = "all topics" if options.topics is None else ", ".join(options.topics)
    note(session, f"looking after {names} of {opened.url}: {', '.join(options.wanted)}")
    line_seconds = math.inf if session.is_json else session.line_seconds
    with (
        metrics_served(session, opened, "run", served, options.topics) as metrics,
        progress(f"looking after {opened.url}", line_seconds=line_seconds) as show_detail,
    ):
        shown.show_detail, shown.metrics = show_detail, metrics
        loop = Loop(opened, options)
        shown.stop = loop.stop
        with noting_signals(loop.stop) as signals:
            loop.run()
    signals.raise_again()
    if shown.broken_pipe is not None:
        raise shown.broken_pipe


def _listed(given: tuple[str, ...]) -> list[str] | None:
    """The names in comma-separated lists; None if there is no list."""
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    if given and not names:
        raise click.UsageError("--topics and --jobs need names, separated by commas")
    return list(dict.fromkeys(names)) if given else None


def _check_topics(store: Store, names: Sequence[str]) -> None:
    """Raise if a topic does not exist: most likely its name is misspelt. What else is wrong with
    one, or with the store, does not stop the others."""
    from pylogtable.cli.session import suggest_topics

    for name in names:
        with suggest_topics(store, name):
            try:
                store.topic(name)
            except TopicNotFoundError:
                raise
            except LogTableError as error:
                _logger.debug("topic %s cannot be read now: %s", name, error)


@dataclass
class _Shown:
    """Shows what the loop has done: a line for each job that changed something, but one for all
    publications from time to time, because they come every second."""

    session: Session
    show_detail: ShowDetail | None = None
    metrics: Metrics = field(default_factory=Metrics)
    done: Counter[str] = field(default_factory=Counter)
    failures: int = 0
    began_ms: int | None = None
    stop: Callable[[], None] = lambda: None
    broken_pipe: BrokenPipeError | None = None
    #: True once something could not be shown.
    is_cut_short: bool = False

    def job_ran(self, run: JobRun) -> None:
        """Show it, and count it for the metrics. If nobody reads the output any more, the loop
        ends, as other programs in a pipe do."""
        self.metrics.job_ran(run)
        try:
            self.show(run)
        except BrokenPipeError as error:
            self.broken_pipe = error
            self.stop()
        except OSError as error:  # the disk of the output is full, say
            if not self.is_cut_short:
                warn(self.session, f"what was done cannot be shown: {error}")
            self.is_cut_short = True

    def progress_of(self, topic: str) -> Callable[[ImportProgress], object]:
        """What an import that begins calls with its progress."""
        return self.metrics.progress_of("import", topic)

    def show(self, run: JobRun) -> None:
        if self.began_ms is None:
            self.began_ms = run.began_ms
        self.failures += run.error is not None
        self.done[run.job] += run.has_changed
        if self.session.is_json:
            if run.has_changed:
                time = datetime.fromtimestamp(run.began_ms / 1000, timezone.utc)
                shown = {"time": time, "job": run.job, "topic": run.topic, "report": run.report}
                print_json_line(shown)
            return
        if run.has_changed and run.job != "publication":
            print(run, flush=True)
        if self.show_detail is not None:
            done = ((job.replace("_", " "), count) for job, count in self.done.items())
            parts = [f"{count:,} {job}" for job, count in done if count]
            if self.failures:
                parts.append(count_text(self.failures, "failure"))
            self.show_detail(", ".join(parts), (run.began_ms - self.began_ms) / 1000)
