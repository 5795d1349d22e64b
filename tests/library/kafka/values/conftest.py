"""One server of schemas for all of these tests, empty for each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.library.kafka.registry import RegistryServer, registry_server


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as started:
        yield started
