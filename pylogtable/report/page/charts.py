"""Charts as inline SVG. Pure.

Labels are HTML around the SVG, so that a chart stretches and its text does not. Data has one
colour, every mark has a tooltip, and every chart has a sentence for screen readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

_WIDTH, _HEIGHT = 1000, 100
_NICE = (1, 2, 3, 4, 5, 6, 8, 10)
#: The gap between two blocks of a strip, if they are wide enough.
_GAP = 1.2


class Mark(NamedTuple):
    """A column or a point: its value and its tooltip."""

    value: float
    tip: str


class Marker(NamedTuple):
    """A line across a chart at a place from 0 to 1, with its label."""

    at: float
    label: str


class Block(NamedTuple):
    """Part of a strip, from 0 to 1, in one of five shades. 0 is the lightest."""

    start: float
    end: float
    shade: int
    tip: str


@dataclass(frozen=True)
class Plot:
    """The frame of a chart. `description` is for screen readers, `x_labels` stand below the chart,
    `y_label` formats the numbers of the y axis, and the axis ends at a round number in powers of
    `unit`."""

    title: str
    description: str
    x_labels: Sequence[str]
    y_label: Callable[[float], str]
    note: str = ""
    marker: Marker | None = None
    unit: int = 1000


def columns(plot: Plot, marks: Sequence[Mark]) -> str:
    """A column chart."""
    top = nice_top(max((mark.value for mark in marks), default=0), plot.unit)
    step = _WIDTH / max(1, len(marks))
    path = "".join(
        f"M{_n(step * (i + 0.08))} {_HEIGHT}V{_n(_y(mark.value, top))}h{_n(step * 0.84)}V{_HEIGHT}z"
        for i, mark in enumerate(marks)
        if mark.value
    )
    return _figure(plot, top, f'<path class="fill" d="{path}"/>{_hits(marks)}')


def line(plot: Plot, marks: Sequence[Mark]) -> str:
    """A line chart with a filled area below. Each value is at the right end of its place."""
    top = nice_top(max((mark.value for mark in marks), default=0), plot.unit)
    step = _WIDTH / max(1, len(marks))
    points = "".join(
        f"L{_n(step * (i + 1))} {_n(_y(mark.value, top))}" for i, mark in enumerate(marks)
    )
    inner = (
        f'<path class="wash" d="M0 {_HEIGHT}{points}L{_WIDTH} {_HEIGHT}z"/>'
        f'<path class="line" d="M0 {_HEIGHT}{points}"/>{_hits(marks)}'
    )
    return _figure(plot, top, inner)


def strips(
    title: str,
    rows: Iterable[tuple[str, Sequence[Block], Marker | None]],
    *,
    x_labels: Sequence[str],
    legend: Sequence[str],
) -> str:
    """Rows of blocks that share one axis. A row's marker is drawn as a tick. The legend has a word
    for each shade."""
    drawn = "".join(
        f'<span>{escape(label)}</span><svg viewBox="0 0 {_WIDTH} 10" preserveAspectRatio="none" '
        f'role="img" aria-label="{escape(f"{title}, {label}")}">'
        f'<rect class="track" width="{_WIDTH}" height="10"/>'
        f"{''.join(map(_block, blocks))}{_tick(marker)}</svg>"
        for label, blocks, marker in rows
    )
    ends = "".join(f"<span>{escape(text)}</span>" for text in x_labels)
    shades = "".join(
        f'<span><svg viewBox="0 0 1 1" aria-hidden="true"><rect class="s{shade}" width="1" '
        f'height="1"/></svg>{escape(word)}</span>'
        for shade, word in enumerate(legend)
    )
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<div class="strips">{drawn}<span></span><div class="ends">{ends}</div></div>'
        f'<div class="legend">{shades}</div></figure>'
    )


def bars(
    title: str,
    description: str,
    rows: Iterable[tuple[str, float, str, str]],
    *,
    marker: Marker | None = None,
) -> str:
    """A horizontal bar for each (label, length from 0 to 1, value as text, tooltip)."""
    tick = (
        f'<i class="limit" style="left:{_n(marker.at * 100)}%" title="{escape(marker.label)}"></i>'
        if marker
        else ""
    )
    drawn = "".join(
        f'<span class="name">{escape(label)}</span><div class="bar" title="{escape(tip)}">'
        f'<i style="width:{_n(min(1.0, length) * 100)}%"></i>{tick}</div>'
        f"<span>{escape(value)}</span>"
        for label, length, value, tip in rows
    )
    note = f' <small class="rule-note">{escape(marker.label)}</small>' if marker else ""
    return (
        f'<figure role="img" aria-label="{escape(description)}"><figcaption>{escape(title)}{note}'
        f'</figcaption><div class="bars">{drawn}</div></figure>'
    )


def nice_top(value: float, unit: int = 1000) -> float:
    """Where an axis ends: the next round number, in powers of `unit`."""
    scale = 1.0
    while scale * unit <= value:
        scale *= unit
    return scale * _round_up(value / scale)


def _round_up(value: float) -> float:
    power = 1.0
    while power * 10 <= value:
        power *= 10
    return next(power * factor for factor in _NICE if power * factor >= value)


def _figure(plot: Plot, top: float, inner: str) -> str:
    grid = "".join(
        f'<path class="{name}" d="M0 {y}H{_WIDTH}"/>'
        for name, y in (("grid", 0), ("grid", 50), ("axis", _HEIGHT))
    )
    labels = "".join(f"<span>{escape(plot.y_label(top * part))}</span>" for part in (1, 0.5, 0))
    below = "".join(f"<span>{escape(text)}</span>" for text in plot.x_labels)
    note = f" <small>{escape(plot.note)}</small>" if plot.note else ""
    mark = line_up = ""
    if plot.marker is not None:
        x = _n(plot.marker.at * _WIDTH)
        mark = f'<path class="limit" d="M{x} 0V{_HEIGHT}"/>'
        side = "left" if plot.marker.at < 0.5 else "right"
        gap = plot.marker.at if side == "left" else 1 - plot.marker.at
        line_up = (
            f'<b class="rule" style="{side}:calc({_n(gap * 100)}% + 4px)">'
            f"{escape(plot.marker.label)}</b>"
        )
    return (
        f"<figure><figcaption>{escape(plot.title)}{note}</figcaption>"
        f'<div class="plot"><div class="y">{labels}</div><div class="area">{line_up}'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(plot.description)}">{grid}{inner}{mark}</svg></div>'
        f'<div class="x">{below}</div></div></figure>'
    )


def _hits(marks: Sequence[Mark]) -> str:
    """Invisible rectangles with the tooltips. They are wider than the marks, which may be thin."""
    step = _WIDTH / max(1, len(marks))
    return "".join(
        f'<rect class="hit" x="{_n(step * i)}" width="{_n(step)}" height="{_HEIGHT}">'
        f"<title>{escape(mark.tip)}</title></rect>"
        for i, mark in enumerate(marks)
        if mark.tip
    )


def _block(block: Block) -> str:
    start, width = block.start * _WIDTH, (block.end - block.start) * _WIDTH
    width = max(width - min(_GAP, width / 5), 0.5)
    return (
        f'<rect class="s{block.shade}" x="{_n(start)}" width="{_n(width)}" '
        f'height="10"><title>{escape(block.tip)}</title></rect>'
    )


def _tick(marker: Marker | None) -> str:
    if marker is None:
        return ""
    x = _n(marker.at * _WIDTH)
    return f'<path class="tick" d="M{x} 0V10"><title>{escape(marker.label)}</title></path>'


def _y(value: float, top: float) -> float:
    """The y coordinate of a value. A value above zero is always visible."""
    return min(_HEIGHT - 1, _HEIGHT * (1 - value / top)) if value else _HEIGHT


def _n(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")
