"""What a command says: text for people, JSON for programs, complaints in one line.

A table is drawn by rich on a terminal that is wide enough; elsewhere columns are aligned by spaces,
for `awk` and eyes.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pylogtable.cli.session import Session

NOTHING = "-"


def print_json(thing: object) -> None:
    """One JSON document."""
    print(json.dumps(thing, indent=2, default=plain, ensure_ascii=False))


def plain(thing: Any) -> Any:
    """What JSON has no word for, as it is documented: times in ISO-8601, bytes in base64."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return dataclasses.asdict(thing)
    if isinstance(thing, datetime | date):
        return thing.isoformat()
    if isinstance(thing, bytes):
        return base64.b64encode(thing).decode()
    if isinstance(thing, Decimal):
        return str(thing)
    if isinstance(thing, set | frozenset | tuple):
        return list(thing)
    raise TypeError(f"{type(thing).__name__} has no place in JSON")


def print_table(
    head: Sequence[str], rows: Iterable[Sequence[object]], *, left: Sequence[str] = ()
) -> None:
    """Rows under a head; numbers stand to the right, the columns named in `left` to the left."""
    cells = [[_cell(value) for value in row] for row in rows]
    to_left = [name in left for name in head]
    lines = [list(head), *cells]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    is_wide = sum(widths) + 2 * len(widths) > shutil.get_terminal_size().columns
    if sys.stdout.isatty() and not is_wide:
        _print_rich(head, cells, to_left)
        return
    for line in lines:
        padded = (
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(line, widths, to_left, strict=True)
        )
        print("  ".join(padded).rstrip())


def _print_rich(head: Sequence[str], cells: list[list[str]], to_left: list[bool]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, is_left in zip(head, to_left, strict=True):
        table.add_column(name, justify="left" if is_left else "right", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)


def _cell(value: object) -> str:
    if value is None:
        return NOTHING
    return time_text(value) if isinstance(value, datetime) else str(value)


def bytes_text(size: int | None) -> str:
    """For people: 3.4 MiB."""
    if size is None:
        return NOTHING
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def time_text(when: datetime) -> str:
    """In UTC, to the millisecond, as `--time` and `--from` take it."""
    return when.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def complain(session: Session, kind: str, message: str, **more: object) -> None:
    """In one line, as alerts and log shippers want it; a JSON object if JSON was asked for."""
    line = " ".join(message.split())
    if session.is_json:
        line = json.dumps({"error": kind, "message": line, **more}, ensure_ascii=False)
    else:
        line = f"pylogtable: {line}"
    print(line, file=sys.stderr, flush=True)


def note(session: Session, message: str) -> None:
    """A remark that is not the answer."""
    if not session.is_json:
        print(message, file=sys.stderr, flush=True)


def warn(session: Session, message: str) -> None:
    """A remark that must not be missed, whatever the output."""
    line = json.dumps({"warning": message}) if session.is_json else f"pylogtable: {message}"
    print(line, file=sys.stderr, flush=True)


def confirm(what: str, yes: bool) -> None:
    """Go on only if it was said, by --yes or by somebody at the terminal."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.ClickException(f"this would {what}; say --yes to do it, --dry-run to look")
    if not click.confirm(f"This will {what}. Go on?", err=True):
        raise click.ClickException("nothing was done")


@contextmanager
def progress(doing: str, *, show: bool = True) -> Iterator[Callable[[str], None]]:
    """A sign of life on a terminal while something long runs, and a way to say how far it is;
    nothing anywhere else."""
    if not (show and sys.stderr.isatty()):
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True).status(doing) as status:
        yield lambda text: status.update(f"{doing} {text}")
