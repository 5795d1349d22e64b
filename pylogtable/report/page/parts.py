"""What the report's page is put together from: tiles, tables, a list of advice. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from pylogtable.report.advise import Advice
from pylogtable.report.health import TopicHealth
from pylogtable.results.text import duration_text

#: Of a long list only so many rows are shown.
ROWS_SHOWN = 50
#: Where there is nothing to say.
NONE = "\N{EN DASH}"

_HEADINGS = {"now": "Now", "soon": "Soon", "look": "Look"}


def advice_list(entries: Iterable[tuple[Advice, str]], *, with_topic: bool) -> str:
    items = "".join(
        f'<li class="{escape(given.urgency)}"><em>{_HEADINGS[given.urgency]}</em><span>'
        f"{f'<b>{escape(name)}</b>: ' if with_topic else ''}{escape(given.why)}</span>"
        f"<code>{_unbroken(given.command)}</code></li>"
        for given, name in entries
    )
    return f'<ul class="advice">{items}</ul>'


def _unbroken(command: str) -> str:
    """An option is not broken after its dashes."""
    return " ".join(
        f"<i>{escape(word)}</i>" if word.startswith("--") else escape(word)
        for word in command.split(" ")
    )


def tiles(*facts: tuple[str, str]) -> str:
    tiles = "".join(f"<div><b>{escape(v)}</b><span>{escape(k)}</span></div>" for k, v in facts)
    return f'<div class="tiles">{tiles}</div>'


def table_of(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return table(head, body)


def table(head: Sequence[str], body: str) -> str:
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f'<div class="wide"><table>{f"<tr>{top}</tr>" if head else ""}{body}</table></div>'


def ago(topic: TopicHealth) -> str:
    """When the newest commit was made."""
    passed = topic.now_ms - topic.committed_at_ms
    return "just now" if passed < 1000 else f"{duration_text(passed)} ago"
