"""Fixtures of the tests of damaged tables; other modules here have their own of these names."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylogtable import Store, Topic
from tests.builders import Clock, make_store
from tests.publish.damage import make_topic
from tests.stores import AgingDisk


@pytest.fixture
def disk(tmp_path: Path, clock: Clock) -> AgingDisk:
    return AgingDisk(tmp_path, clock)


@pytest.fixture
def store(disk: AgingDisk, clock: Clock, in_files: bool) -> Store:
    return make_store(disk, clock, in_files=in_files)


@pytest.fixture
def topic(store: Store) -> Topic:
    return make_topic(store)
