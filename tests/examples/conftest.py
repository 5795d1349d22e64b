"""The store that the examples look after, and the tools that check them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import pylogtable
from pylogtable import Topic
from tests.builders import kafka, times


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    """A topic of which maintenance removes the only record, which is of the year 2023."""
    topic = pylogtable.open(tmp_path / "logs").create_topic("t", 1)
    topic.append(kafka(["a"], timestamp=times(0)))
    return topic


@pytest.fixture(scope="session")
def tools() -> Path:
    """The folder of the tools from PyPI."""
    folder = os.environ.get("PYLOGTABLE_EXAMPLE_TOOLS")
    if not folder:
        pytest.skip("no tools for the examples: make test-examples brings them")
    return Path(folder) / "bin"


@pytest.fixture(scope="session")
def podman() -> str:
    program = os.environ.get("PYLOGTABLE_PODMAN")
    if not program:
        pytest.skip("no podman: PYLOGTABLE_PODMAN=podman make test-examples uses it")
    return program
