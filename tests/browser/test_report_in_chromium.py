"""The report in a real browser: no console error, no request, no overflow, no overlapping labels.

Chromium makes requests of its own. The page's requests are those with an initiator. Host names do
not resolve, so nothing leaves this machine.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pylogtable import report_html
from tests.reports import example_store

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PHONE, DESK = 360, 1100
HEIGHT = 2500

# Finds in each frame what is wider than the frame, and labels that overlap.
PROBE = """
function look(frame) {
  const inner = frame.contentDocument, found = [];
  const box = e => e.getBoundingClientRect();
  if (inner.documentElement.scrollWidth > frame.clientWidth) found.push('scrolls sideways');
  for (const e of inner.querySelectorAll('h1,h2,h3,p,figure,figcaption,.x,.bars,.advice span,code'))
    if (box(e).right > frame.clientWidth + 0.5) found.push('sticks out: ' + e.textContent);
  for (const plot of inner.querySelectorAll('.plot')) {
    const labels = [...plot.querySelectorAll('.x span,.y span,.rule')].filter(e => e.textContent);
    labels.push(plot.parentNode.querySelector('figcaption'));
    labels.forEach((a, i) => labels.slice(i + 1).forEach(b => {
      const r = box(a), s = box(b);
      const apart = r.right <= s.left || s.right <= r.left || r.bottom <= s.top + 1
        || s.bottom <= r.top + 1;
      if (!apart) found.push('overlap: ' + a.textContent + ' | ' + b.textContent);
    }));
    if (box(plot.querySelector('svg')).height < 100) found.push('a picture is flat');
    for (const e of labels)
      if (parseFloat(getComputedStyle(e).fontSize) < 11) found.push('tiny: ' + e.textContent);
  }
  return {found, plots: inner.querySelectorAll('.plot').length,
          height: inner.documentElement.scrollHeight};
}
addEventListener('load', () => {
  document.title = JSON.stringify([...document.querySelectorAll('iframe')].map(look));
});
"""


@dataclass
class Seen:
    """What the browser showed, logged and requested."""

    dom: str
    console: list[str]
    requests: set[str]


@dataclass
class Browser:
    program: str
    folder: Path

    def show(self, page: str, *arguments: str) -> Seen:
        path, log = self.folder / "page.html", self.folder / "net.json"
        path.write_text(page, encoding="utf-8")
        done = subprocess.run(
            [
                self.program,
                "--headless",
                "--no-sandbox",  # most containers have none, and the page is ours
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--no-proxy-server",
                "--hide-scrollbars",
                "--host-resolver-rules=MAP * ~NOTFOUND",
                "--enable-logging=stderr",
                f"--user-data-dir={self.folder / 'profile'}",
                f"--log-net-log={log}",
                "--virtual-time-budget=2000",
                *arguments,
                "--dump-dom",
                path.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        return Seen(done.stdout, console, _requests(log.read_text()))


def _requests(log: str) -> set[str]:
    events: list[dict[str, Any]] = json.loads(log)["events"]
    asked = [event["params"] for event in events if "initiator" in event.get("params", {})]
    return {params["url"] for params in asked if params["initiator"] != "not an origin"}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no Chromium here: none of {', '.join(NAMES)} is on the PATH")
    return Browser(found, tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="module")
def report() -> str:
    return report_html(example_store()[0])


def test_page_opens_without_console_errors_or_requests(browser: Browser, report: str) -> None:
    seen = browser.show(report)
    assert seen.console == []
    assert seen.requests == set()
    assert seen.dom.count("<figure") == report.count("<figure") > 10
    assert seen.dom.rstrip().endswith("</main></body></html>")


def test_requests_and_console_errors_would_be_noticed(browser: Browser, report: str) -> None:
    policy = re.search(r'<meta http-equiv="Content-Security-Policy"[^>]*>', report)
    assert policy
    asking = '<img src="http://127.0.0.1:9/x.png"><script>console.error("oh")</script></main>'
    open_page = report.replace(policy[0], "").replace("</main>", asking)
    seen = browser.show(open_page)
    assert seen.requests == {"http://127.0.0.1:9/x.png"}
    assert any("oh" in line for line in seen.console)
    closed = browser.show(report.replace("</main>", asking))
    assert closed.requests == set()
    assert len(closed.console) == 2


def test_page_is_readable_on_phone_and_desktop_in_dark_and_light(
    browser: Browser, report: str
) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow comes with matplotlib")
    frames = "".join(
        f'<iframe style="border:0;float:left;width:{width}px;height:{HEIGHT}px;'
        f'color-scheme:{scheme}" srcdoc="{html.escape(report)}"></iframe>'
        for width, scheme in ((PHONE, "dark"), (DESK, "light"))
    )
    shot = browser.folder / "shot.png"
    seen = browser.show(
        f'<!DOCTYPE html><body style="margin:0">{frames}<script>{PROBE}</script>',
        f"--screenshot={shot}",
        f"--window-size={PHONE + DESK},{HEIGHT}",
    )
    title = re.search(r"<title>(.*?)</title>", seen.dom, re.DOTALL)
    assert title
    phone, desk = json.loads(html.unescape(title[1]))
    for name, view in (("phone", phone), ("desk", desk)):
        assert view["found"] == [], name
        assert view["plots"] > 10
    assert phone["height"] > desk["height"]
    picture = image.open(shot).convert("RGB")
    dark = picture.crop((0, 0, PHONE, 2000))
    light = picture.crop((PHONE, 0, PHONE + DESK, 2000))
    assert _background(dark) < 40
    assert _background(light) > 220
    for part in (dark, light):
        assert len(part.getcolors(maxcolors=2**20)) > 50, "blank"


def _background(picture: Any) -> float:
    """The brightness of the most common colour, the background."""
    _, colour = max(picture.getcolors(maxcolors=2**20))
    return sum(colour) / 3
