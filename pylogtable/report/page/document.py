"""The report as one page of HTML that needs nothing else: no script, no network. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from pylogtable.report.advise import URGENCIES, Advice
from pylogtable.report.health import FailedTopic, TopicHealth
from pylogtable.report.page.parts import NONE, ROWS_SHOWN, advice_list, ago, table, tiles
from pylogtable.report.page.style import CSS
from pylogtable.report.page.topic_section import failed_section, topic_section
from pylogtable.results.text import bytes_text, percent_text, short_count, time_text

#: With more topics than this the reader opens those they want to see.
TOPICS_OPEN = 6

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_HEAD = (
    "topic",
    "policy",
    "partitions",
    "records",
    "size",
    "segments",
    "small",
    "dirty",
    "greatest lag",
    "newest commit",
    "advice",
)

Advised = Mapping[str, Sequence[Advice]]


def page(
    url: str, topics: Sequence[TopicHealth | FailedTopic], advice: Advised, now_ms: int
) -> str:
    """All topics of the store at `url`; `advice` is by topic."""
    anchors = {topic.name: f"topic-{number}" for number, topic in enumerate(topics)}
    is_open = len(topics) <= TOPICS_OPEN
    sections = "".join(
        topic_section(topic, advice.get(topic.name, ()), anchors[topic.name], is_open=is_open)
        if isinstance(topic, TopicHealth)
        else failed_section(topic, anchors[topic.name])
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


def _totals(topics: Sequence[TopicHealth | FailedTopic]) -> str:
    sound = [topic for topic in topics if isinstance(topic, TopicHealth)]
    return tiles(
        ("topics", f"{len(topics):,}"),
        ("records", short_count(sum(topic.total("records") for topic in sound))),
        ("in segments", bytes_text(sum(topic.total("size_bytes") for topic in sound))),
        ("segments", short_count(sum(topic.total("segments") for topic in sound))),
        ("consumer groups", f"{len({g.group for topic in sound for g in topic.groups}):,}"),
    )


def _all_advice(topics: Sequence[TopicHealth | FailedTopic], advice: Advised) -> str:
    ranked = sorted(
        ((given, topic.name) for topic in topics for given in advice.get(topic.name, ())),
        key=lambda entry: URGENCIES.index(entry[0].urgency),
    )
    if not topics:
        body = "<p>There is no topic here yet.</p>"
    elif ranked:
        body = advice_list(ranked[:ROWS_SHOWN], with_topic=True)
        if len(ranked) > ROWS_SHOWN:
            body += f"<p><small>{len(ranked) - ROWS_SHOWN:,} more below, by topic.</small></p>"
    else:
        body = "<p>Nothing: all topics that could be read are in shape.</p>"
    return f"<h2>What to run</h2><section>{body}</section>"


def _overview(
    topics: Sequence[TopicHealth | FailedTopic], advice: Advised, anchors: Mapping[str, str]
) -> str:
    rows = []
    for topic in topics:
        name = f'<td class="text"><a href="#{anchors[topic.name]}">{escape(topic.name)}</a></td>'
        if isinstance(topic, FailedTopic):
            rows.append(f'{name}<td class="text bad" colspan="10">{escape(topic.error)}</td>')
            continue
        segments = topic.total("segments")
        lag = max((group.lag.records for group in topic.groups if group.lag), default=None)
        cells = (
            topic.settings["cleanup.policy"],
            f"{len(topic.partitions):,}",
            f"{topic.total('records'):,}",
            bytes_text(topic.total("size_bytes")),
            f"{segments:,}",
            percent_text(topic.total("small") / segments) if segments else NONE,
            NONE if topic.dirty_ratio is None else percent_text(topic.dirty_ratio),
            NONE if lag is None else f"{lag:,}",
            ago(topic),
            str(len(advice.get(topic.name, ())) or NONE),
        )
        rows.append(name + "".join(f"<td>{escape(cell)}</td>" for cell in cells))
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<h2>Topics</h2><section>{table(_HEAD, body)}</section>" if topics else ""
