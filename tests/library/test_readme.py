"""The examples of the README and of the library's guides run as they stand, in order, each document
in one session. Those that need Spark run in `tests/spark/test_readme.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import code, read


@pytest.mark.parametrize(
    ("document", "topics"),
    [
        ("README.md", ["clicks"]),
        ("pylogtable/README.md", ["clicks", "orders"]),
        ("pylogtable/publish/README.md", ["customers", "orders"]),
        ("pylogtable/mirror/README.md", ["orders"]),
        ("pylogtable/storage/README.md", []),
    ],
)
@pytest.mark.filterwarnings("ignore:Iceberg scan planning")
def test_every_python_example_runs(
    document: str, topics: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = code(read(document), "python")
    others = {note for note, _ in blocks if note}
    assert all(note == "spark" or note.startswith("no-run: ") for note in others)
    session: dict[str, object] = {}
    for note, example in blocks:
        if not note:
            exec(compile(example, document, "exec"), session)
    for topic in topics:
        assert (tmp_path / "logs" / topic / "_manifest").is_dir()


def test_the_readme_has_at_most_200_lines() -> None:
    assert len(read("README.md").splitlines()) <= 200


def test_the_readme_names_the_two_commands() -> None:
    (commands, *_) = (body for _, body in code(read("README.md"), "sh"))
    assert "make demo" in commands
    assert "make test" in commands
