"""A proof as one page of HTML, without scripts or network access. Pure."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from pylogtable.presentation import count_text, duration_text, number_text, rows_html
from pylogtable.prove.report import Moment, OperationRow, ProveReport
from pylogtable.report.page.charts import Mark, Plot, columns
from pylogtable.report.page.document import CSS
from pylogtable.report.page.parts import tiles, wide_table

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page_of(report: ProveReport) -> str:
    """The report as a page."""
    title = f"Proof of {report.url}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p{'' if report else ' class=bad'}>{escape(report.verdict)}.</p>",
        _summary(report),
        _anomalies(report),
        f"<h2>Operations</h2><section><div class=wide>"
        f"{rows_html(OperationRow, report.operations)}</div></section>",
        _faults(report),
        _charts(report),
    ]
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>"
    )


def _summary(report: ProveReport) -> str:
    total = sum(row.ok + row.failed + row.unknown for row in report.operations)
    early = " (ended early)" if report.ended_early else ""
    return tiles(
        ("operations", number_text(total)),
        ("faults", number_text(sum(report.faults.values()))),
        ("kinds of anomalies", number_text(len(report.anomalies))),
        ("records", number_text(report.records)),
        ("requests", number_text(report.requests)),
        ("processes that append", number_text(report.processes)),
        (f"duration{early}", duration_text(report.seconds * 1000)),
        ("seed", str(report.seed)),
    )


def _anomalies(report: ProveReport) -> str:
    if not report.anomalies:
        return ""
    sections = []
    for anomaly in report.anomalies:
        rows = [(one.sentence, ", ".join(one.operations)) for one in anomaly.examples]
        sections.append(
            f"<section><h3>{escape(anomaly.name)}, {count_text(anomaly.times, 'time')}</h3>"
            f"<p>{escape(anomaly.meaning)}</p>{wide_table(('what', 'operations'), rows)}</section>"
        )
    kept = ""
    if report.evidence is not None:
        kept = (
            f"<p>Recorded operations: {escape(report.evidence.history)}. "
            f"The topic: {escape(report.evidence.store)}.</p>"
        )
    return f"<h2>Anomalies</h2>{kept}{''.join(sections)}"


def _faults(report: ProveReport) -> str:
    rows = [(kind, number_text(count)) for kind, count in report.faults.items()]
    return (
        f"<h2>Faults</h2><section><p>Those of requests were made by: {escape(report.faults_by)}."
        f"</p>{wide_table(('kind', 'count'), rows)}</section>"
    )


def _charts(report: ProveReport) -> str:
    if not report.timeline:
        return ""

    def chart(title: str, value: Callable[[Moment], float], unit: str) -> str:
        plot = Plot(
            title,
            f"{title}, over {report.seconds:.0f} seconds",
            ["0 s", f"{report.seconds:.0f} s"],
            lambda number: f"{number:,.0f}",
        )
        marks = [
            Mark(value(one), f"{one.second:.0f} s: {value(one):,.0f} {unit}")
            for one in report.timeline
        ]
        return columns(plot, marks)

    drawn = (
        chart("Operations that were ok", lambda one: one.ok, "operations"),
        chart("The slowest operation, in ms", lambda one: one.slowest_ms, "ms"),
        chart("Kills and pauses", lambda one: one.kills_and_pauses, "kills and pauses"),
    )
    return f'<h2>Over time</h2><section><div class="charts">{"".join(drawn)}</div></section>'
