"""The README's examples run as they stand, in order, in one session. Those that need Spark run in
`tests/spark/test_readme.py`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
_BLOCK = re.compile(r"^```python([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_every_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = _BLOCK.findall(README.read_text(encoding="utf-8"))
    runnable = [code for note, code in blocks if not note.strip()]
    others = {note.strip() for note, _ in blocks if note.strip()}
    assert all(note == "spark" or note.startswith("no-run: ") for note in others)
    assert len(runnable) >= 5
    session: dict[str, object] = {}
    for code in runnable:
        exec(compile(code, str(README), "exec"), session)
    assert (tmp_path / "logs" / "orders" / "_manifest").is_dir()


def test_it_names_the_two_commands() -> None:
    text = README.read_text(encoding="utf-8")
    assert "make demo" in text
    assert "make test" in text


def test_its_examples_show_no_unfinished_place() -> None:
    text = README.read_text(encoding="utf-8")
    assert not re.search(r"\b(TODO|RESULTS|ONE_[A-Z]+)\b", text)
