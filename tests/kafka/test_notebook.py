"""The notebook for moving over, on a real broker; `tests/notebooks` runs it on a mock cluster."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from confluent_kafka.admin import AdminClient
from nbclient import NotebookClient

from tests.notebooks.test_notebooks import NOTEBOOKS, ThisPython, read


def test_notebook_moves_a_topic_over_and_cleans_up(
    servers: str, admin: AdminClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", servers)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    before = set(admin.list_topics(timeout=30).topics)
    (path,) = [path for path in NOTEBOOKS if path.stem == "from_kafka"]
    notebook: nbformat.NotebookNode = read(path)
    folder = {"metadata": {"path": str(tmp_path)}}
    client = NotebookClient(notebook, kernel_manager_class=ThisPython, resources=folder)
    client.execute()
    assert set(admin.list_topics(timeout=30).topics) <= before | {"__consumer_offsets"}
