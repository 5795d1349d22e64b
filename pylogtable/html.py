"""Tables as HTML, for notebooks. Pure; every value is escaped, since names come from outside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def table_html(rows: Iterable[Sequence[str]], head: Sequence[str] = ()) -> str:
    top = f"<tr>{_cells('th', head)}</tr>" if head else ""
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    return f"<table>{top}{body}</table>"


def titled_html(title: str, *parts: str) -> str:
    return f"<div><b>{escape(title)}</b>{''.join(parts)}</div>"


def bytes_text(size: int) -> str:
    """A size as people say it."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def _cells(tag: str, row: Sequence[str]) -> str:
    return "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row)
