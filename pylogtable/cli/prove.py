"""`pylogtable prove`: clients, faults and a checker of what they were told, on the user's store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pylogtable import InvalidRequestError
from pylogtable.cli.command import Command
from pylogtable.cli.messages import progress
from pylogtable.cli.options import COUNT, POSITIVE, store_argument
from pylogtable.cli.output import print_json, print_rows
from pylogtable.cli.session import FAILED, NOT_KNOWN, Session
from pylogtable.cli.signals import noting_signals
from pylogtable.presentation import count_text, duration_text

if TYPE_CHECKING:
    from pylogtable.prove import ProveReport


@click.command(
    cls=Command,
    short_help="Prove that a store keeps what topics promise.",
    examples="""
        pylogtable prove ./logs --minutes 1
        pylogtable prove s3://bucket/logs --minutes 30 --processes 16 --output json
        pylogtable prove ./logs --faults kills,pauses --seed 7 --keep
    """,
)
@store_argument
@click.option("--minutes", type=float, default=5.0, show_default=True, help="How long it runs.")
@click.option(
    "--processes",
    type=POSITIVE,
    default=8,
    show_default=True,
    help="Processes that append. Six more read, consume and maintain.",
)
@click.option("--seed", type=COUNT, help="Make the same random choices as an earlier run.")
@click.option(
    "--faults",
    metavar="LIST",
    default="kills,pauses,skew,replies",
    show_default=True,
    help="Which faults to make, separated by commas, or none.",
)
@click.option(
    "--html", metavar="FILE", type=click.Path(dir_okay=False), help="Write a page about it as well."
)
@click.option("--keep", is_flag=True, help="Keep the topic and the recorded operations.")
def prove(
    session: Session,
    store: str | None,
    minutes: float,
    processes: int,
    seed: int | None,
    faults: str,
    html: str | None,
    keep: bool,
) -> int:
    """Try on STORE whether topics keep their promises under faults.

    Many processes append, read and consume one topic. Meanwhile they are killed and stopped, their
    clocks are wrong, and replies of the store get lost. Each records what it asked and what it was
    told, and a checker decides over all of it: lost and doubled records, their order, stale reads,
    positions of groups. It works in a folder of its own, which it removes, unless there was an
    anomaly. The exit status is 1 if there was one.
    """
    from pylogtable.prove import ProveOptions, page_of
    from pylogtable.prove import prove as run_proof

    session.status_if_store_fails = NOT_KNOWN
    url = session.store_url(store)
    if html is not None and not Path(html).parent.is_dir():
        raise click.BadParameter(f"there is no directory {Path(html).parent}", param_hint="--html")
    chosen = tuple(name.strip() for name in faults.split(",") if name.strip() not in ("", "none"))
    options = ProveOptions(minutes, processes, seed, chosen, keep)
    with noting_signals() as signals, progress(f"proving {url}:") as show_detail:

        def tell(seconds: float, operations: int, met: int) -> None:
            left = duration_text(max(0.0, minutes * 60 - seconds) * 1000)
            done = f"{count_text(operations, 'operation')}, {count_text(met, 'fault')} of processes"
            show_detail(f"{done}, {left} left", seconds)

        try:
            report = run_proof(
                url,
                options,
                storage_options=session.parsed_storage_options(),
                on_progress=tell,
                stop=signals.has_come,
            )
        except InvalidRequestError as error:
            raise click.UsageError(str(error)) from None
    if html is not None:
        Path(html).write_text(page_of(report), encoding="utf-8")
    print_report(session, report)
    if report:
        signals.raise_again()
    return 0 if report else FAILED


def print_report(session: Session, report: ProveReport) -> None:
    """A row for each kind of operation, and then the rest; or JSON."""
    if session.is_json:
        print_json(report.to_json())
        return
    from pylogtable.prove import OperationRow

    print_rows(OperationRow, report.operations)
    print(report)
