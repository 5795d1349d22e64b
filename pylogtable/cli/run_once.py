"""`pylogtable run --once` and `--dry-run`: what is due now, and the mirrors."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pylogtable.cli.maintain import Place, confirm_jobs, maintain_topic, places
from pylogtable.cli.messages import continue_on_error, progress
from pylogtable.cli.mirror import MirrorOutcome
from pylogtable.cli.output import print_json
from pylogtable.cli.session import Session, topic_names
from pylogtable.presentation import count_text

if TYPE_CHECKING:
    from pylogtable import Store
    from pylogtable.run import RunOptions


def run_once(
    session: Session, store: Store, options: RunOptions, *, dry_run: bool, yes: bool
) -> None:
    """Run the jobs of each topic, then its mirror, and print what they did."""
    from pylogtable import MaintainReport
    from pylogtable.engine import protected_groups

    names = list(options.topics or topic_names(store))
    protected = protected_groups(store, list(options.protect_groups), names)
    jobs = [job for job in options.wanted if job != "mirror"]
    copies = options.mirror_to if "mirror" in options.wanted else None
    if not dry_run:
        topics = f"{count_text(len(names), 'topic')} of {store.url}"
        also = "" if copies is None else f"mirror {topics} to {copies.url}"
        confirm_jobs(jobs, topics, yes, also=also)
    rows: list[dict[str, Any]] = []
    for place in places(names):
        report = MaintainReport(place.topic, dry_run=dry_run)
        if jobs:
            threads = options.threads
            report = maintain_topic(
                session, store, place, protected, jobs, dry_run=dry_run, threads=threads
            )
        rows.append(asdict(report))
        if copies is not None and dry_run:
            rows[-1]["mirror"] = {"topic": place.topic, "to": copies.url, "dry_run": True}
            if not session.is_json:
                print(f"{place.topic}: would be mirrored to {copies.url}", flush=True)
        elif copies is not None:
            outcome = _mirrored(session, store, place, copies, groups=options.mirror_groups)
            rows[-1]["mirror"] = outcome.as_json()
    if session.is_json:
        print_json(rows)


def _mirrored(
    session: Session, store: Store, place: Place, copies: Store, *, groups: bool
) -> MirrorOutcome:
    """Mirror a topic, and tell people."""
    outcome = MirrorOutcome(place.topic)
    with (
        continue_on_error(session, place.topic) as attempt,
        progress(f"mirroring {place}"),
    ):
        outcome.report = store.topic(place.topic).mirror(copies, groups=groups)
    outcome.error = attempt.error
    outcome.show(session)
    return outcome
