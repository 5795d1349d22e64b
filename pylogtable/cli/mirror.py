"""`pylogtable mirror`: copy topics to another store, and keep the copies up to date."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import click

from pylogtable import LogTableError
from pylogtable.cli.check import comparison_json, print_comparison
from pylogtable.cli.command import Command
from pylogtable.cli.messages import ShowDetail, Speed, continue_on_error, progress, warn
from pylogtable.cli.metrics import Metrics, metrics_served
from pylogtable.cli.options import complete_settings, complete_topics, many, metrics_options
from pylogtable.cli.output import print_copied_groups, print_json
from pylogtable.cli.parse import parse_config
from pylogtable.cli.session import Session, topic_names
from pylogtable.cli.signals import Signals, noting_signals

if TYPE_CHECKING:
    from pylogtable import ComparisonReport, MirrorProgress, MirrorReport, Store

#: How many topics are followed at a time. Each has a thread, which sleeps most of the time.
MOST_TOPICS = 10_000


@click.command(
    cls=Command,
    short_help="Copy topics to another store.",
    examples="""
        pylogtable mirror s3://a/logs/orders s3://b/logs
        pylogtable mirror s3://a/logs/orders s3://b/logs --follow --groups
        pylogtable mirror --all-topics s3://b/logs --store s3://a/logs --check
        pylogtable mirror orders ./archive --retention own --config retention.ms=-1
    """,
)
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topics)
@click.argument("to_store")
@click.option(
    "--all-topics",
    is_flag=True,
    help="Every topic of the store. With --follow also those that are created later.",
)
@click.option("--name", metavar="NAME", help="The topic there.  [default: the same name]")
@click.option("--follow", is_flag=True, help="Go on with new records until Ctrl-C or SIGTERM.")
@click.option(
    "--poll-seconds",
    type=click.FloatRange(0.001, 86_400),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often --follow looks for new records. Each time may write a small file for each "
    "partition.",
)
@click.option("--groups", is_flag=True, help="Also copy the positions of consumer groups.")
@click.option(
    "--retention",
    type=click.Choice(["source", "own"]),
    help="source: the copy has the records of its source, and loses what the source loses. own: it "
    "keeps and removes records by its own settings.  [default: source, or as the copy is]",
)
@many("--config", "-c", metavar="NAME=VALUE", help="A setting of a new copy with --retention own.",
      shell_complete=complete_settings)  # fmt: skip
@click.option(
    "--allow-gaps",
    is_flag=True,
    help="Go on if the source has removed records before they were copied. For --retention own.",
)
@click.option(
    "--check", is_flag=True, help="Then compare both sides. The exit status is 1 if they differ."
)
@click.option(
    "--to-storage-options",
    metavar="JSON",
    help="The same as --storage-options, for TO_STORE.  [default: those of --storage-options]",
)
@metrics_options
def mirror(
    session: Session,
    /,
    topics: tuple[str, ...],
    to_store: str,
    all_topics: bool,
    check: bool,
    to_storage_options: str | None,
    **options: Any,
) -> int:
    """Copy each TOPIC to the store TO_STORE, under the same partitions and offsets.

    The first mirror creates the copy. Later ones bring what is new. Ctrl-C and SIGTERM end it after
    the running commit, and a repeat goes on. A topic that fails does not stop the others; the exit
    status is 1.
    """
    if bool(topics) == all_topics:
        raise click.UsageError("give the topics and the store to copy them to, or --all-topics")
    if check and options["follow"]:
        raise click.UsageError("--check compares at the end, which --follow does not have")
    if options["name"] is not None and len(topics) != 1:
        raise click.UsageError("--name is for a single topic")
    options["config"] = parse_config(options["config"]) or None
    sources = list(dict.fromkeys(topics or topic_names(session.open_store())))
    if "/" not in to_store and not any("/" in topic for topic in sources):
        _check_is_no_topic(session.open_store(), to_store)
    target = session.open_other_store(to_store, to_storage_options, "--to-storage-options")
    with (
        noting_signals() as signals,
        metrics_served(session, target, "mirror", options) as metrics,
    ):
        run = _Run(session, target, options, signals, metrics, check=check, has_new=all_topics)
        for outcome in run.all(sources):
            outcome.show(session)
    if session.is_json:
        print_json([outcome.as_json() for outcome in run.outcomes])
    signals.raise_again()
    return 0 if all(outcome.is_good for outcome in run.outcomes) else 1


def _check_is_no_topic(store: Store, to_store: str) -> None:
    """Raise if somebody has forgotten to say where the copies go."""
    if to_store in store.topics():
        raise click.UsageError(
            f"{to_store!r} is a topic of {store.url}: give the store to copy to after the topics. "
            f"A directory of that name is ./{to_store}"
        )


@dataclass
class MirrorOutcome:
    """What became of the mirror of one topic."""

    topic: str
    report: MirrorReport | None = None
    check: ComparisonReport | None = None
    has_own_retention: bool = False
    error: str | None = None

    @property
    def is_good(self) -> bool:
        """False if it failed, or if the copy has other records than its source. It may lag, since
        others append meanwhile."""
        if self.error is not None or self.check is None:
            return self.error is None
        is_whole = self.has_own_retention or all(
            row.other_start <= row.start for row in self.check.partitions
        )
        return self.check.same_so_far and is_whole

    def as_json(self) -> dict[str, Any]:
        """The report, or why there is none."""
        if self.report is None:
            return {"topic": self.topic, "error": self.error}
        checked = {} if self.check is None else {"check": comparison_json(self.check)}
        return {**asdict(self.report), **checked, "error": self.error}

    def show(self, session: Session) -> None:
        """Tell people."""
        if session.is_json or self.report is None:
            return
        print(self.report, flush=True)
        left_out = {f"group {name}": why for name, why in self.report.left_out.items()}
        print_copied_groups(session, self.report.groups, left_out)
        if self.check is not None:
            print_comparison(self.check)


@dataclass
class _Run:
    """One call of the program. With `has_new`, topics that are created meanwhile are followed,
    too."""

    session: Session
    target: Store
    options: dict[str, Any]
    signals: Signals
    metrics: Metrics
    check: bool
    has_new: bool
    outcomes: list[MirrorOutcome] = field(default_factory=list)

    def all(self, topics: Sequence[str]) -> Iterable[MirrorOutcome]:
        """Mirror these topics: one after the other, or side by side if they are followed."""
        if self.options["follow"] and (len(topics) > 1 or self.has_new):
            yield from self._side_by_side(topics)
            return
        for topic in topics:
            if self.signals.has_come():
                return
            outcome = MirrorOutcome(topic)
            self.outcomes.append(outcome)
            with (
                continue_on_error(self.session, topic) as attempt,
                self._progress(topic) as show_detail,
            ):
                self._mirror(outcome, _showing(show_detail))
            outcome.error = attempt.error
            yield outcome

    def _side_by_side(self, topics: Sequence[str]) -> Iterable[MirrorOutcome]:
        latest: dict[str, MirrorProgress] = {}
        speed = Speed()
        running: dict[Future[None], MirrorOutcome] = {}
        what = "all topics" if self.has_new else f"{len(topics)} topics"
        with (
            self._progress(what) as show_detail,
            ThreadPoolExecutor(MOST_TOPICS) as pool,
        ):

            def run(outcome: MirrorOutcome) -> None:
                def tell(at: MirrorProgress) -> None:
                    latest[outcome.topic] = at
                    told = list(latest.values())
                    show_detail(progress_text(told, speed), max(one.seconds for one in told))

                with continue_on_error(self.session, outcome.topic, outcome.error) as attempt:
                    self._mirror(outcome, tell)
                outcome.error = attempt.error

            def start(outcomes: Iterable[MirrorOutcome]) -> None:
                running.update({pool.submit(run, outcome): outcome for outcome in outcomes})

            start(self._added(topics))
            while running:
                done, _ = wait(running, self.session.look_seconds, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                    yield running.pop(future)
                if not done and not self.signals.has_come():
                    busy = {outcome.topic for outcome in running.values()}
                    start([outcome for outcome in self.outcomes if outcome.topic not in busy])
                    start(self._added(self._new_topics()))

    def _added(self, topics: Iterable[str]) -> list[MirrorOutcome]:
        new = [MirrorOutcome(topic) for topic in topics]
        self.outcomes += new
        return new

    def _progress(self, what: str) -> AbstractContextManager[ShowDetail]:
        seconds = self.session.seconds_between_lines(self.options)
        return progress(f"mirroring {what}", line_seconds=seconds)

    def _new_topics(self) -> list[str]:
        if not self.has_new:
            return []
        known = {outcome.topic for outcome in self.outcomes}
        try:
            return [name for name in self.session.open_store().topics() if name not in known]
        except LogTableError as error:
            warn(self.session, f"new topics are not looked for, and later again: {error}")
            return []

    def _mirror(self, outcome: MirrorOutcome, tell: Callable[[MirrorProgress], None]) -> None:
        source = self.session.open_topic(outcome.topic)
        count = self.metrics.progress_of("mirror", self.options["name"] or source.name)

        def tell_and_count(at: MirrorProgress) -> None:
            tell(at)
            count(at)

        with self.metrics.counting_errors():
            outcome.report = source.mirror(
                self.target, on_progress=tell_and_count, stop=self.signals.has_come, **self.options
            )
        if self.check:
            copy = self.target.topic(outcome.report.topic)
            status = copy.describe().mirror
            outcome.has_own_retention = status is not None and status.own_retention
            outcome.check = source.compare(copy, version=outcome.report.source_version)


def _showing(show_detail: ShowDetail) -> Callable[[MirrorProgress], None]:
    speed = Speed()
    return lambda at: show_detail(progress_text([at], speed), at.seconds)


def progress_text(at: Sequence[MirrorProgress], speed: Speed) -> str:
    """How far the mirrors of one or several topics are, together."""
    records, size = sum(one.records for one in at), sum(one.size_bytes for one in at)
    rate = speed.at(max(one.seconds for one in at), size) / 1e6
    lag = sum(sum(one.lag.values()) for one in at)
    behind = f"{lag:,} offsets" if lag else "none"
    return f"{records:,} records, {size / 1e6:,.1f} MB, {rate:,.1f} MB/s, lag {behind}"
