"""Building blocks of the report's page: tiles, tables, lists of advice. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from pylogtable.presentation import duration_text, table_html
from pylogtable.report.advice import Advice
from pylogtable.report.health import TopicHealth

#: How many rows of a long list are shown.
ROWS_SHOWN = 50

_HEADINGS = {"now": "Now", "soon": "Soon", "look": "Look"}


def advice_list(entries: Iterable[tuple[Advice, str]], *, with_topic: bool) -> str:
    """Pieces of advice, each with the name of its topic."""
    items = "".join(
        f'<li class="{escape(given.urgency)}"><em>{_HEADINGS[given.urgency]}</em><span>'
        f"{f'<b>{escape(name)}</b>: ' if with_topic else ''}{escape(given.why)}</span>"
        f"<code>{_unbroken(given.command)}</code></li>"
        for given, name in entries
    )
    return f'<ul class="advice">{items}</ul>'


def _unbroken(command: str) -> str:
    """Keep an option and its dashes on one line."""
    return " ".join(
        f"<i>{escape(word)}</i>" if word.startswith("--") else escape(word)
        for word in command.split(" ")
    )


def tiles(*facts: tuple[str, str]) -> str:
    """Large numbers with their labels, given as (label, number)."""
    tiles = "".join(f"<div><b>{escape(v)}</b><span>{escape(k)}</span></div>" for k, v in facts)
    return f'<div class="tiles">{tiles}</div>'


def wide_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table that scrolls sideways on a narrow screen."""
    return f'<div class="wide">{table_html(rows, head)}</div>'


def ago(topic: TopicHealth) -> str:
    """How long ago the newest commit was made."""
    passed = topic.now_ms - topic.committed_at_ms
    return "just now" if passed < 1000 else f"{duration_text(passed)} ago"
