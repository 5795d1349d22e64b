"""Which topics `kafka import` and `export` are about, how far they are, and what became of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from threading import Lock
from typing import TYPE_CHECKING, Any

import click

from pylogtable import LogTableError
from pylogtable.cli.messages import ShowDetail, Speed, continue_on_error
from pylogtable.cli.metrics import Metrics
from pylogtable.cli.output import print_json
from pylogtable.cli.session import Session
from pylogtable.presentation import count_text

if TYPE_CHECKING:
    from pylogtable import Store
    from pylogtable.kafka import ImportProgress

#: A terminal shows so many topics, those that are farthest behind.
MOST_ROWS = 10


def pattern_options(command: Callable[..., object]) -> Callable[..., object]:
    """The options that choose topics without naming each of them."""
    pattern = click.option(
        "--topic-pattern",
        metavar="REGEX",
        help="The topics whose whole name matches this, such as 'orders\\..*'.",
    )
    every = click.option(
        "--all-topics",
        is_flag=True,
        help="All topics, but internal ones, dead letters and what was redriven of them. With "
        "--follow and for a pattern also those that are created later.",
    )
    return pattern(every(command))


def one_topic(
    topics: tuple[str, ...], pattern: str | None, all_topics: bool, name: str | None, option: str
) -> str | None:
    """The topic, if it is one that is named. Raises unless there is one way to choose them."""
    if bool(topics) + (pattern is not None) + all_topics != 1:
        raise click.UsageError(f"give {option}, --topic-pattern or --all-topics: one of them")
    one = topics[0] if len(set(topics)) == 1 else None
    if one is None and name is not None:
        raise click.UsageError("--name is for a single topic")
    return one


def choice_of(topics: tuple[str, ...], pattern: str | None, all_topics: bool) -> dict[str, Any]:
    """The topics, as `import_topics` and `export_topics` take them."""
    return {"topics": topics or None, "pattern": pattern, "all_topics": all_topics}


def located(session: Session, topics: tuple[str, ...]) -> tuple[Store, tuple[str, ...]]:
    """The store that all of these TOPIC arguments are in, and their names."""
    places = [session.locate(topic) for topic in topics]
    if len({store.url for store, _ in places}) > 1:
        raise click.UsageError("give topics of one store, and run the command once for each store")
    store = places[0][0] if places else session.open_store()
    return store, tuple(name for _, name in places)


class Outcomes:
    """What became of each topic. `show` shows people a report, and `note_failed` gets the topics
    that failed."""

    def __init__(
        self,
        session: Session,
        metrics: Metrics,
        show: Callable[[Any], None],
        note_failed: Callable[[str], None],
    ) -> None:
        self._session = session
        self._note_failed = note_failed
        self._metrics = metrics
        self._show = show

    def tell(self, topic: str, outcome: Any) -> None:
        """Tell people of a topic that has ended. An error is told in any case."""
        if isinstance(outcome, LogTableError):
            with continue_on_error(self._session, topic), self._metrics.counting_errors():
                raise outcome
            self._note_failed(topic)
        elif not self._session.is_json:
            self._show(outcome)

    def print_json(self, reports: Mapping[str, Any], errors: Mapping[str, LogTableError]) -> None:
        """Print all of them, if a program asked for that."""
        if self._session.is_json:
            print_json(
                [
                    {"topic": topic, "error": str(errors[topic])}
                    if topic in errors
                    else {**asdict(reports[topic]), "error": None}
                    for topic in sorted({*reports, *errors})
                ]
            )


class ImportsShown:
    """How far the imports of many topics are, together and one by one."""

    def __init__(self, show_detail: ShowDetail, metrics: Metrics) -> None:
        self._show_detail = show_detail
        self._metrics = metrics
        self._latest: dict[str, ImportProgress] = {}
        self._count: dict[str, Callable[[ImportProgress], object]] = {}
        self._speed = Speed()
        self._failed: set[str] = set()
        self._lock = Lock()

    def tell(self, topic: str, at: ImportProgress) -> None:
        """Called by the threads that import."""
        with self._lock:
            if topic not in self._count:
                self._count[topic] = self._metrics.progress_of("import", topic)
            self._count[topic](at)
            self._latest[topic] = at
            self._failed.discard(topic)
            self._show()

    def note_failed(self, topic: str) -> None:
        """A topic has failed. It does until it is told of again: with --follow it is tried again,
        and its error is not repeated."""
        with self._lock:
            self._failed.add(topic)
            self._show()

    def _show(self) -> None:
        told = list(self._latest.values())
        records = sum(one.records for one in told)
        seconds = max((one.seconds for one in told), default=0.0)
        behind = {name: sum(one.lag.values()) for name, one in self._latest.items()}
        lag = sum(behind.values())
        text = (
            f"{count_text(len(told), 'topic')}: {records:,} records, "
            f"{self._speed.at(seconds, records):,.0f} records/s, "
            f"lag {f'{lag:,}' if lag else 'none'}{_failed_text(self._failed)}"
        )
        farthest = sorted(behind, key=lambda name: (-behind[name], name))
        rows = [
            f"{name}: {self._latest[name].records:,} records, lag {behind[name]:,}"
            for name in farthest[:MOST_ROWS]
        ]
        if len(farthest) > MOST_ROWS:
            rows.append(f"and {len(farthest) - MOST_ROWS:,} more")
        self._show_detail(text, seconds, rows)


class ExportsShown:
    """How far the exports of many topics are, together."""

    def __init__(self, show_detail: ShowDetail) -> None:
        self._show_detail = show_detail
        self._latest: dict[str, int] = {}
        self._failed: set[str] = set()
        self._lock = Lock()

    def tell(self, topic: str, records: int) -> None:
        """Called by the threads that export."""
        with self._lock:
            self._latest[topic] = records
            self._failed.discard(topic)
            self._show()

    def note_failed(self, topic: str) -> None:
        """A topic has failed, until it is told of again."""
        with self._lock:
            self._failed.add(topic)
            self._show()

    def _show(self) -> None:
        total, failed = sum(self._latest.values()), _failed_text(self._failed)
        self._show_detail(f"{count_text(len(self._latest), 'topic')}: {total:,} records{failed}")


def _failed_text(failed: Collection[str]) -> str:
    return f", {len(failed):,} failed" if failed else ""
