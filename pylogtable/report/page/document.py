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
from pylogtable.report.page.topic_section import topic_section, unreadable_section

CSS = """
:root{color-scheme:light dark;--page:#f9f9f7;--surface:#fcfcfb;--ink:#0b0b0b;--ink2:#52514e;
--muted:#6f6e69;--grid:#e1e0d9;--axis:#c3c2b7;--edge:rgba(11,11,11,.1);--data:#2a78d6;
--wash:rgba(42,120,214,.12);--track:#efeee9;--s0:#b7d3f6;--s1:#6da7ec;--s2:#2a78d6;--s3:#1c5cab;
--s4:#0d366b;--limit:#0b0b0b;--now:#b32424;--soon:#8a5a00;--look:#52514e;--code:#f0efec}
@media (prefers-color-scheme:dark){:root{--page:#0d0d0d;--surface:#1a1a19;--ink:#fff;--ink2:#c3c2b7;
--muted:#a09f98;--grid:#2c2c2a;--axis:#4a4a46;--edge:rgba(255,255,255,.1);--data:#3987e5;
--wash:rgba(57,135,229,.18);--track:#262624;--s0:#184f95;--s1:#256abf;--s2:#3987e5;--s3:#86b6ef;
--s4:#cde2fb;--limit:#fff;--now:#ff8a8a;--soon:#fab219;--look:#c3c2b7;--code:#262624}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1120px;margin:0 auto;padding:24px 20px 64px}
h1{font-size:24px;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:19px;margin:36px 0 10px}
h3{font-size:15px;margin:26px 0 8px}
p{margin:6px 0;max-width:80ch;overflow-wrap:anywhere}
a{color:inherit;text-decoration-color:var(--axis);text-underline-offset:3px}
small,.quiet{color:var(--muted);font-size:13px;font-weight:400}
section,details{background:var(--surface);border:1px solid var(--edge);border-radius:8px;
padding:16px 20px;margin:14px 0}
details>summary{cursor:pointer;margin:-16px -20px;padding:14px 20px;overflow-wrap:anywhere}
details[open]>summary{margin-bottom:4px}
summary b{font-size:17px;margin-right:10px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(118px,1fr));gap:14px 20px;
margin:14px 0}
.tiles div{min-width:0}
.tiles b{display:block;font-size:20px;line-height:1.3;font-weight:600;overflow-wrap:anywhere}
.tiles span{color:var(--ink2);font-size:13px}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th{font-weight:500;color:var(--ink2);text-align:right;white-space:nowrap}
th,td{padding:5px 0 5px 18px;border-bottom:1px solid var(--grid)}
tr:last-child td{border-bottom:0}
td{text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left;padding-left:0}
td.text,th.text{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:9em}
.bad{color:var(--now)}
.advice{list-style:none;padding:0;margin:0;overflow-wrap:anywhere}
.advice i{font-style:normal;white-space:nowrap}
.advice li{padding:10px 0;border-top:1px solid var(--grid);display:grid;
grid-template-columns:64px minmax(0,1fr);gap:2px 12px}
.advice li:first-child{border-top:0}
.advice em{font-style:normal;font-weight:600;font-size:13px;line-height:1.75}
.now em{color:var(--now)}.soon em{color:var(--soon)}.look em{color:var(--look)}
.advice code{grid-column:2;background:var(--code);border-radius:4px;padding:3px 8px;
font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere;
justify-self:start;max-width:100%;user-select:all}
figure{margin:0;min-width:0}
figcaption{font-weight:500;font-size:14px;margin-bottom:6px}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr));
gap:24px 36px;margin:20px 0 14px}
.plot{padding-top:14px;display:grid;grid-template-columns:max-content minmax(0,1fr);gap:4px 8px;
font-size:12px;color:var(--muted);font-variant-numeric:tabular-nums}
.plot svg{display:block;width:100%;height:120px;overflow:visible}
.y{display:flex;flex-direction:column;justify-content:space-between;text-align:right;
min-width:44px;height:132px;line-height:1;margin:-6px 0}
.x{grid-column:2;display:flex;justify-content:space-between;gap:10px}
.area{position:relative}
.rule{position:absolute;top:-19px;font-weight:500;color:var(--ink2);white-space:nowrap}
.fill{fill:var(--data)}.wash{fill:var(--wash)}
.line{fill:none;stroke:var(--data);stroke-width:2;stroke-linejoin:round}
.grid,.axis,.line,svg .limit,.tick{vector-effect:non-scaling-stroke}
.grid{stroke:var(--grid)}.axis{stroke:var(--axis)}
svg .limit{stroke:var(--limit);stroke-dasharray:3 3}
.hit{fill:transparent}.hit:hover{fill:var(--wash)}
.strips{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:3px 10px;
align-items:center;font-size:12px;color:var(--muted);font-variant-numeric:tabular-nums}
.strips span{text-align:right}
.strips svg{display:block;width:100%;height:16px}
.strips .track{fill:var(--track)}
.strips rect:hover:not(.track){fill:var(--ink)}
.tick{stroke:var(--limit);stroke-width:3;fill:none}
.s0{fill:var(--s0)}.s1{fill:var(--s1)}.s2{fill:var(--s2)}.s3{fill:var(--s3)}.s4{fill:var(--s4)}
.ends{display:flex;justify-content:space-between;font-size:12px;color:var(--muted);margin-top:4px}
.settings{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,170px),1fr));
gap:8px 24px;margin:0;font-size:13.5px}
.settings div{overflow-wrap:anywhere}.settings dt{color:var(--ink2)}.settings dd{margin:0}
.legend{display:flex;flex-wrap:wrap;gap:4px 14px;font-size:12px;color:var(--ink2);margin-top:10px}
.legend svg{width:12px;height:12px;border-radius:2px;vertical-align:-1px;margin-right:5px}
.bars{display:grid;grid-template-columns:minmax(0,max-content) minmax(60px,1fr) max-content;
gap:6px 10px;align-items:center;font-size:13px;font-variant-numeric:tabular-nums}
.bars .name{overflow-wrap:anywhere;max-width:22ch}
.bar{position:relative;height:14px;background:var(--track);border-radius:3px}
.bar i:first-child{position:absolute;inset:0 auto 0 0;background:var(--data);border-radius:3px}
.bar .limit{position:absolute;top:-3px;bottom:-3px;width:2px;margin-left:-1px;
background:var(--limit)}
@media (max-width:560px){main{padding:16px 12px 48px}section,details{padding:14px}
details>summary{margin:-14px;padding:14px}.advice li{grid-template-columns:minmax(0,1fr)}
.advice code{grid-column:1}.tiles{grid-template-columns:repeat(2,minmax(0,1fr))}}
@media print{details{break-inside:avoid}}
"""


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
