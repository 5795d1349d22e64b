"""The report as one page of HTML, without scripts or network access. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from pylogtable.presentation import (
    ABSENT,
    bytes_text,
    number_text,
    percent_text,
    short_count,
    time_text,
)
from pylogtable.report.advice import URGENCIES, Advice
from pylogtable.report.health import TopicHealth, UnreadableTopic
from pylogtable.report.page.parts import ROWS_SHOWN, advice_list, ago, tiles
from pylogtable.report.page.style import CSS
from pylogtable.report.page.topic_section import topic_section, unreadable_section

#: With more topics than this, all sections are closed at first.
TOPICS_OPEN = 6

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

#: The columns of the overview, after the topic's name: heading and cell.
COLUMNS: tuple[tuple[str, Callable[[TopicHealth], str]], ...] = (
    ("policy", lambda topic: topic.settings["cleanup.policy"]),
    ("partitions", lambda topic: number_text(len(topic.partitions))),
    ("records", lambda topic: number_text(topic.total("records"))),
    ("size", lambda topic: bytes_text(topic.total("size_bytes"))),
    ("segments", lambda topic: number_text(topic.total("segments"))),
    ("small", lambda topic: percent_text(_small_share(topic))),
    ("dirty", lambda topic: percent_text(topic.dirty_ratio)),
    ("greatest lag", lambda topic: number_text(_greatest_lag(topic))),
    ("newest commit", ago),
)

Advised = Mapping[str, Sequence[Advice]]


def page(
    url: str, topics: Sequence[TopicHealth | UnreadableTopic], advice: Advised, now_ms: int
) -> str:
    """The page about the store at `url`. `advice` is by topic."""
    anchors = {topic.name: f"topic-{number}" for number, topic in enumerate(topics)}
    is_open = len(topics) <= TOPICS_OPEN
    sections = "".join(
        topic_section(topic, advice.get(topic.name, ()), anchors[topic.name], is_open=is_open)
        if isinstance(topic, TopicHealth)
        else unreadable_section(topic, anchors[topic.name])
        for topic in topics
    )
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(url)}: pylogtable report</title><style>{CSS}</style></head><body><main>"
        f"<header><h1>{escape(url)}</h1><small>pylogtable report of {time_text(now_ms)}; "
        f"all times are UTC</small></header>{_totals(topics)}{_all_advice(topics, advice)}"
        f"{_overview(topics, advice, anchors)}<h2>Topic by topic</h2>{sections}"
        "</main></body></html>"
    )


def _totals(topics: Sequence[TopicHealth | UnreadableTopic]) -> str:
    sound = [topic for topic in topics if isinstance(topic, TopicHealth)]
    return tiles(
        ("topics", f"{len(topics):,}"),
        ("records", short_count(sum(topic.total("records") for topic in sound))),
        ("in segments", bytes_text(sum(topic.total("size_bytes") for topic in sound))),
        ("segments", short_count(sum(topic.total("segments") for topic in sound))),
        ("consumer groups", f"{len({g.group for topic in sound for g in topic.groups}):,}"),
    )


def _all_advice(topics: Sequence[TopicHealth | UnreadableTopic], advice: Advised) -> str:
    ranked = sorted(
        ((given, topic.name) for topic in topics for given in advice.get(topic.name, ())),
        key=lambda entry: URGENCIES.index(entry[0].urgency),
    )
    if not topics:
        body = "<p>This store has no topics yet.</p>"
    elif ranked:
        body = advice_list(ranked[:ROWS_SHOWN], with_topic=True)
        if len(ranked) > ROWS_SHOWN:
            more = f"{len(ranked) - ROWS_SHOWN:,} more below, in the sections of the topics."
            body += f"<p><small>{more}</small></p>"
    else:
        body = "<p>No job is due: all topics that could be read are in good shape.</p>"
    return f"<h2>What to run</h2><section>{body}</section>"


def _overview(
    topics: Sequence[TopicHealth | UnreadableTopic], advice: Advised, anchors: Mapping[str, str]
) -> str:
    if not topics:
        return ""
    heads = ("topic", *(head for head, _ in COLUMNS), "advice")
    rows = [f"<tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr>"]
    for topic in topics:
        link = f'<a href="#{anchors[topic.name]}">{escape(topic.name)}</a>'
        if isinstance(topic, UnreadableTopic):
            span = len(heads) - 1
            cells = f'<td class="text bad" colspan="{span}">{escape(topic.error)}</td>'
        else:
            texts = [cell(topic) for _, cell in COLUMNS]
            texts.append(str(len(advice.get(topic.name, ())) or ABSENT))
            cells = "".join(f"<td>{escape(text)}</td>" for text in texts)
        rows.append(f'<tr><td class="text">{link}</td>{cells}</tr>')
    table = f'<div class="wide"><table>{"".join(rows)}</table></div>'
    return f"<h2>Topics</h2><section>{table}</section>"


def _small_share(topic: TopicHealth) -> float | None:
    segments = topic.total("segments")
    return topic.total("small_segments") / segments if segments else None


def _greatest_lag(topic: TopicHealth) -> int | None:
    return max((group.lag.records for group in topic.groups if group.lag is not None), default=None)
