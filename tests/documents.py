"""The documents of this repository, as their tests read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("", "pylogtable", "pylogtable/cli", "pylogtable/publish", "pylogtable/kafka",
           "pylogtable/kafka/values",
           "pylogtable/mirror", "pylogtable/metrics", "pylogtable/run", "pylogtable/storage",
           "spark_ext", "benchmarks", "examples",
           "format_spec", "format_spec/decisions")  # fmt: skip
DOCUMENTS = sorted(path for folder in FOLDERS for path in (ROOT / folder).glob("*.md"))

_BLOCK = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def read(path: Path | str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def code(text: str, language: str) -> list[tuple[str, str]]:
    """The code blocks of a language: the words after it on the first line, and the code."""
    return [(note.strip(), body) for name, note, body in _BLOCK.findall(text) if name == language]


def prose(text: str) -> str:
    """The text without its code blocks."""
    return _BLOCK.sub("", text)


def section(text: str, heading: str) -> str:
    """What stands below a heading such as `## Limits`, up to the next of its level or above."""
    _, found, rest = text.partition(f"\n{heading}\n")
    assert found, f"there is no {heading!r}"
    level = len(heading) - len(heading.lstrip("#"))
    return re.split(rf"^#{{1,{level}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def table(text: str) -> Iterator[list[str]]:
    """The cells of each row of the first table in a text, without its head."""
    lines = text[text.index("\n|") + 1 :].splitlines()
    for line in lines[2:]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]


def quoted(cell: str) -> list[str]:
    """The names in backquotes."""
    return re.findall(r"`([^`]+)`", cell)


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
