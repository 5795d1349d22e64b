"""Lost, late and refused requests below the client, on a real S3 server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from pylogtable.storage.base import ObjectStore
from pylogtable.storage.remote import RemoteStore
from tests.proxy import Proxy, WireFault, proxy_before
from tests.s3_server.server import Server, options
from tests.storage.wire import WireContract
from tests.storage.wire_jobs import ANSWERS, CASES, FIRST, check_pair


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with proxy_before(server.port) as one:
        yield one


class TestServer(WireContract):
    @pytest.fixture
    def far(self, proxy: Proxy, place: str) -> ObjectStore:
        return RemoteStore("s3", place, options(proxy.url))

    @pytest.fixture
    def direct(self, objects: RemoteStore) -> ObjectStore:
        return objects


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("name", CASES)
def test_refusal_after_a_put_in_doubt_removes_nothing(
    proxy: Proxy, objects: RemoteStore, place: str, name: str, first: WireFault
) -> None:
    late = (False, True) if first is WireFault.DELAY else (False,)
    for number, (then, late_at_once) in enumerate(itertools.product(ANSWERS, late)):
        far = RemoteStore("s3", f"{place}/{number}", options(proxy.url))
        direct = objects.below(str(number))
        check_pair(proxy, far, direct, CASES[name], first, then, late_at_once=late_at_once)
