"""A proxy before the S3 of this process."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.proxy import Proxy, proxy_before


@pytest.fixture
def proxy(s3_endpoint: str) -> Iterator[Proxy]:
    port = urlsplit(s3_endpoint).port
    assert port is not None
    with proxy_before(port) as one:
        yield one
