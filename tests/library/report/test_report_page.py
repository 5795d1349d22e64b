"""The report's HTML, without a browser: well formed, self-contained, escaped, of bounded length."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

import pylogtable
from pylogtable.format.snapshot import Snapshot
from pylogtable.groups.report import GroupLag, Lag
from pylogtable.presentation import (
    ABSENT,
    bytes_text,
    count_text,
    duration_text,
    number_text,
    percent_text,
    short_count,
    time_text,
)
from pylogtable.report.advice import Advice, advise
from pylogtable.report.health import GroupHealth, TopicHealth, UnreadableTopic
from pylogtable.report.measure import PARTITIONS_DRAWN
from pylogtable.report.page.charts import nice_top
from pylogtable.report.page.document import TOPICS_OPEN, page
from pylogtable.report.page.parts import ROWS_SHOWN
from pylogtable.report.report_html import report_html
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import Clock, ints, kafka, make_store
from tests.library.report.test_measure import NOW, health, segment, snapshot, state
from tests.reports import LONG, example_store
from tests.stores import CountingStore

HOSTILE = "<script>alert('x')</script>\"&"
GREATEST = 2**63 - 1
VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """Parses a page and fails if a tag is not closed. Collects text, attributes and tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.ids: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def values(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]


@pytest.fixture(scope="module")
def html() -> str:
    return report_html(example_store()[0])


@pytest.fixture(scope="module")
def parsed(html: str) -> Page:
    return Page(html)


def test_page_is_self_contained(html: str, parsed: Page) -> None:
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(parsed.tags)
    assert "Content-Security-Policy" in parsed.values("http-equiv")
    assert [value for value in parsed.values("content") if "default-src 'none'" in value]
    assert not re.search(r"https?://|url\(|@import|@font-face", html)
    assert not [name for _, name, _ in parsed.attributes if name == "src" or name.startswith("on")]
    assert all(link.startswith("#") for link in parsed.values("href"))
    assert {link[1:] for link in parsed.values("href")} <= set(parsed.values("id"))


def test_page_has_styles_for_dark_mode_and_small_screens(html: str, parsed: Page) -> None:
    assert "prefers-color-scheme:dark" in html
    assert "width=device-width,initial-scale=1" in parsed.values("content")
    assert "max-width:560px" in html


def test_every_chart_has_a_description_for_screen_readers(parsed: Page) -> None:
    labels = parsed.values("aria-label")
    assert all(labels)
    assert parsed.values("role") == ["img"] * len(labels)
    hidden = parsed.values("aria-hidden")
    bars = parsed.values("class").count("bars")
    assert parsed.tags.count("svg") + bars == len(labels) + len(hidden)
    assert parsed.tags.count("title") > 100


def test_every_topic_is_shown_with_its_numbers(parsed: Page) -> None:
    for name in ("orders", "profiles", LONG, "empty", "payments"):
        assert name in parsed.text
    assert "CorruptTopicError" in parsed.text
    assert "1,224" in parsed.text  # the records of orders
    assert "segment.bytes, which is 19.5 KiB" in parsed.text
    assert "all times are UTC" in parsed.text
    for heading in ("What to run", "Partitions", "Segments", "Growth", "Consumer groups"):
        assert heading in parsed.text
    assert "Dirty ratio compaction above 50%" in parsed.text


def test_advised_commands_are_shown() -> None:
    store, _ = example_store()
    text = Page(report_html(store)).text
    late = "search-index-of-the-web-shop"
    for verb in (f"retain orders --protect-group {late}", "merge orders", "compact profiles"):
        assert f"pylogtable {verb} --store '{store.url}'" in text
    assert f"records that {late} has not read are kept" in text
    assert "has 100% of all records" in text
    assert f"pylogtable verify payments --store '{store.url}'" in text


def test_advice_disappears_once_it_is_followed() -> None:
    """Maintenance does what the report advised."""
    store, _ = example_store()
    before = Page(report_html(store)).text
    for name in ("orders", "profiles"):
        store.topic(name).maintain(vacuum=False)
    after = Page(report_html(store)).text
    for verb in ("retain orders", "compact profiles", "merge orders"):
        assert f"pylogtable {verb}" in before
        assert f"pylogtable {verb}" not in after


def test_report_time_is_the_stores_clock_or_now_ms(store: Store, clock: Clock) -> None:
    store.create_topic("t")
    assert time_text(clock.now_ms) in report_html(store)
    assert "2001-09-09 01:46:40" in report_html(store, now_ms=10**12)


def test_store_without_topics_has_a_page(store: Store) -> None:
    assert "This store has no topics yet." in Page(report_html(store)).text


def test_topic_without_records_has_a_page(store: Store) -> None:
    store.create_topic("t", partitions=2)
    assert "The log is empty." in Page(report_html(store)).text
    assert "in good shape" in Page(report_html(store)).text


def _hostile() -> TopicHealth:
    sound = health(snapshot(state(segment(0, 9)), cleanup_policy="compact"))
    lag = GroupLag(HOSTILE, "t", {0: Lag(1, 9, 8, 80, 8.0)})
    return replace(
        sound,
        name=HOSTILE,
        key=(HOSTILE,),
        settings={**sound.settings, HOSTILE: HOSTILE, "cleanup.policy": HOSTILE},
        groups=(GroupHealth(HOSTILE, lag), GroupHealth(HOSTILE, error=HOSTILE)),
    )


def test_names_and_errors_are_escaped() -> None:
    advice = {HOSTILE: [Advice(HOSTILE, HOSTILE, "now")]}
    made = page(HOSTILE, [_hostile(), UnreadableTopic(HOSTILE + "2", HOSTILE)], advice, NOW)
    assert "<script" not in made
    parsed = Page(made)
    assert parsed.text.count(HOSTILE) > 12
    quoted = [value for _, _, value in parsed.attributes if "alert" in value]
    assert quoted
    assert all(HOSTILE in value for value in quoted)


@pytest.mark.parametrize(
    "drawn",
    [
        snapshot(
            state(segment(0, 5)),
            cleanup_policy="compact,delete",
            retention_ms=GREATEST,
            retention_bytes=GREATEST,
            segment_bytes=GREATEST,
            min_compaction_lag_ms=GREATEST,
        ),
        snapshot(state(segment(2**62, GREATEST, records=1), log_start=2**62)),
        snapshot(
            state(
                segment(0, 5, min_timestamp_us=-GREATEST, max_timestamp_us=-GREATEST),
                segment(5, 6, max_timestamp_us=GREATEST, size_bytes=GREATEST),
            )
        ),
    ],
    ids=["settings", "offsets", "times and sizes"],
)
def test_extreme_64_bit_numbers_can_be_drawn(drawn: Snapshot) -> None:
    topic = health(drawn)
    assert "nan" not in Page(page("u", [topic], {"t": advise(topic, "u")}, NOW)).text


def test_long_lists_are_cut_with_a_note() -> None:
    many = health(snapshot(*(state(segment(0, 9)) for _ in range(ROWS_SHOWN + 3))))
    lags = {number: Lag(1, 9, 8, 80, 8.0) for number in range(ROWS_SHOWN + 3)}
    made = replace(many, groups=(GroupHealth("g", GroupLag("g", "t", lags)),))
    advice = {"t": [Advice("c", "w")] * (ROWS_SHOWN + 5)}
    text = Page(page("u", [made], advice, NOW)).text
    assert "3 more partitions are not listed" in text
    assert "3 more rows are not listed" in text
    assert "5 more below" in text
    assert f"the first {PARTITIONS_DRAWN} partitions" in text


def test_sections_start_closed_if_there_are_many_topics() -> None:
    one = health(snapshot(state(segment(0, 9))))
    topics = [replace(one, name=f"t{n}") for n in range(TOPICS_OPEN + 1)]
    many, few = (Page(page("u", shown, {}, NOW)) for shown in (topics, topics[1:]))
    assert ("details", "open", "") not in many.attributes
    assert few.attributes.count(("details", "open", "")) == TOPICS_OPEN


def test_group_without_a_position_counts_as_behind() -> None:
    store = make_store()
    topic = store.create_topic("orders", partitions=2)
    topic.append(kafka(["a"] * 7))
    topic.append(kafka(["a"] * 4, partition=ints(1, 1, 1, 1)))
    topic.consumer("billing", "a").assignment()  # it has joined, and committed nothing
    text = report_html(store)
    assert "billing: 11 records" in text
    assert "billing: 2 partitions have no committed position" in text
    assert "group billing has no committed position in" in text


def test_unreadable_group_does_not_hide_the_topic() -> None:
    objects = MemoryStore()
    store, _ = example_store(objects)
    newest = max(info.key for info in objects.list("orders/_groups/billing/"))
    objects.write(newest, b"{nope")
    text = Page(report_html(store)).text
    assert "group billing cannot be read: CorruptTopicError: _groups/billing/" in text
    assert "retain orders" in text


def test_store_is_shown_in_notebooks_as_a_table_of_topics() -> None:
    store, _ = example_store()
    made = store._repr_html_()
    text = Page(made).text
    assert "5 topics" in text
    for name in ("orders", "profiles", LONG, "empty", "payments"):
        assert name in text
    assert "CorruptTopicError" in text
    assert "<i>" not in made
    assert time_text(store.topic("orders").at().snapshot.committed_at_ms) in text
    assert Page(make_store()._repr_html_()).text.endswith("0 topics")
    assert "topic orders" in Page(store.topic("orders")._repr_html_()).text


def test_store_table_loads_each_topic_once() -> None:
    objects = MemoryStore()
    store = make_store(objects)
    for number in range(20):
        store.create_topic(f"t{number}").append(kafka(["a"]))
    counting = CountingStore(objects)
    make_store(counting)._repr_html_()
    hints = {
        key: count
        for (verb, key), count in counting.by_key.items()
        if verb == "read" and key.endswith("_head.json")
    }
    assert len(hints) == 20
    assert set(hints.values()) == {1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (short_count(0), "0"),
        (short_count(999), "999"),
        (short_count(1500), "1.5k"),
        (short_count(999_600), "1M"),
        (short_count(25e9), "25G"),
        (bytes_text(2**60), "1.0 EiB"),
        (duration_text(0), "0 s"),
        (duration_text(900), "900 ms"),
        (duration_text(61_000), "1 min 1 s"),
        (duration_text(86_400_000 * 12 + 3_600_000), "12 d"),
        (duration_text(86_400_000 * 2 + 3_600_000), "2 d 1 h"),
        (percent_text(0.001), "<1%"),
        (percent_text(0.999), ">99%"),
        (percent_text(1.0), "100%"),
        (percent_text(0), "0%"),
        (percent_text(None), ABSENT),
        (number_text(0), "0"),
        (number_text(1_234_567), "1,234,567"),
        (number_text(None), ABSENT),
        (count_text(0, "segment"), "0 segments"),
        (count_text(1, "segment"), "1 segment"),
        (bytes_text(0), "0 B"),
        (bytes_text(None), ABSENT),
        (duration_text(None), ABSENT),
        (time_text(None), ABSENT),
        (time_text(0), "1970-01-01 00:00:00"),
        (time_text(0, "day"), "1970-01-01"),
        (time_text(1_500, "milliseconds"), "1970-01-01 00:00:01.500"),
        (time_text(9.2e15, "day"), "9,200,000,000,000,000 ms"),
        (nice_top(0), 1),
        (nice_top(7), 8),
        (nice_top(2001), 3000),
        (nice_top(1025, 1024), 2048),
        (nice_top(1000 * 1024, 1024), 1000 * 1024),
    ],
)
def test_text_of_numbers_sizes_and_times(text: object, expected: object) -> None:
    assert text == expected


def test_report_html_is_public() -> None:
    assert pylogtable.report_html is report_html
