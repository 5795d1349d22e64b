"""Answers on standard output: tables for people, JSON for programs.

On a terminal that is wide enough a table is drawn by rich. Elsewhere its columns are aligned with
spaces, which `awk` can read.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pylogtable.cli.messages import note
from pylogtable.cli.streams import is_terminal, obeying, visible
from pylogtable.presentation import Column, columns_of, offsets_text

if TYPE_CHECKING:
    from pylogtable.cli.session import Session

NO_VALUE = "-"


def print_json(thing: object) -> None:
    """Print one JSON document."""
    print(json.dumps(thing, indent=2, default=_json_value, ensure_ascii=False))


def print_json_line(thing: object) -> None:
    """Print one JSON document in one line, at once: more may follow, for days."""
    print(json.dumps(thing, default=_json_value, ensure_ascii=False), flush=True)


def _json_value(thing: Any) -> Any:
    """Times as ISO 8601, bytes as base64, decimals as text."""
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
    raise TypeError(f"{type(thing).__name__} cannot be written as JSON")


def answer(session: Session, thing: object, text: object) -> None:
    """Print the text, or the thing as JSON if the user asked for that."""
    if session.is_json:
        print_json(thing)
    else:
        print(text, flush=True)


def print_names(session: Session, thing: object, names: Collection[str], if_none: str) -> None:
    """Print one name per line, or the thing as JSON. If there are none, say so to people."""
    if session.is_json:
        print_json(thing)
    elif names:
        print(*names, sep="\n")
    else:
        note(session, if_none)


def print_copied_groups(
    session: Session,
    groups: Mapping[str, Mapping[int, int]],
    left_out: Mapping[str, str],
    topic: str | None = None,
) -> None:
    """Tell people which positions were set in a copy, and what was not copied. If there are many
    copies, each line begins with the `topic`."""
    of = "" if topic is None else f"{topic}: "
    if not session.is_json:
        for group, positions in groups.items():
            print(f"{of}group {group}: {offsets_text(positions)}")
    for name, why in left_out.items():
        note(session, f"{of}not copied: {name}: {why}")


def print_table(
    head: Sequence[str], rows: Iterable[Sequence[object]], *, left: Sequence[str] = ()
) -> None:
    """Print rows below a head. Columns are right-aligned, except those named in `left`."""
    to_left = [name in left for name in head]
    lines = [list(head), *([_cell(value) for value in row] for row in rows)]
    if is_terminal(sys.stdout):
        lines = [[visible(cell) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    is_wide = sum(widths) + 2 * len(widths) > shutil.get_terminal_size().columns
    if is_terminal(sys.stdout) and not is_wide:
        _print_rich(lines[0], lines[1:], to_left)
        return
    for line in lines:
        padded = (
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(line, widths, to_left, strict=True)
        )
        print("  ".join(padded).rstrip())


def print_rows(row: type, rows: Iterable[Any], *, without: Sequence[str] = ()) -> None:
    """Print rows of a report, below the headings that their class declares."""
    columns = {name: column for name, column in columns_of(row).items() if name not in without}
    heads = {name: column.heading.upper().replace(" ", "-") for name, column in columns.items()}
    print_table(
        list(heads.values()),
        ([_shown(getattr(one, name), column) for name, column in columns.items()] for one in rows),
        left=[heads[name] for name, column in columns.items() if column.is_text],
    )


def _shown(value: Any, column: Column) -> object:
    return value if value is None or column.shown is None else column.shown(value)


def _print_rich(head: Sequence[str], cells: list[list[str]], to_left: list[bool]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, is_left in zip(head, to_left, strict=True):
        table.add_column(Text(name), justify="left" if is_left else "right", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    Console(file=obeying(sys.stdout)).print(table)


def _cell(value: object) -> str:
    """A time is in UTC to the millisecond, as `--time` and `--from` accept it."""
    if value is None:
        return NO_VALUE
    if not isinstance(value, datetime):
        return f"{value:.1f}" if isinstance(value, float) else str(value)
    utc = value.astimezone(timezone.utc)
    return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")
