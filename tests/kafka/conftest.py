"""One broker and one schema registry for all of these tests."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.broker import running
from tests.kafka.jars import BROKER, REGISTRY
from tests.kafka.registry import running_registry
from tests.maven import missing

JARS = "PYLOGTABLE_KAFKA_JARS"
REGISTRY_FOLDER = "PYLOGTABLE_KAFKA_REGISTRY"
_numbers = itertools.count()

NewKafkaTopic = Callable[..., str]


@pytest.fixture(scope="session")
def jars() -> Path:
    """The jars of a broker."""
    folder = Path(os.environ.get(JARS, "no-jars"))
    if missing(BROKER, folder):
        pytest.skip("no jars of a Kafka broker; `make test-kafka` fetches them from Maven Central")
    return folder


@pytest.fixture(scope="session")
def servers(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker that is started for these tests."""
    with running(jars, tmp_path_factory.mktemp("broker")) as address:
        yield address


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a schema registry that is started for these tests."""
    folder = Path(os.environ.get(REGISTRY_FOLDER, "no-registry"))
    if missing(REGISTRY, folder):
        pytest.skip("no schema registry; `make test-kafka` fetches it from Maven Central")
    with running_registry(folder, tmp_path_factory.mktemp("registry")) as url:
        yield url


@pytest.fixture(scope="session")
def admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


@pytest.fixture
def new_topic(admin: AdminClient) -> NewKafkaTopic:
    """Creates a topic in Kafka, and returns its name."""

    def create(partitions: int = 3, config: Mapping[str, Any] | None = None) -> str:
        name = f"topic-{next(_numbers)}"
        topic = NewTopic(name, partitions, 1, config=dict(config or {}))
        admin.create_topics([topic])[name].result(30)
        return name

    return create
