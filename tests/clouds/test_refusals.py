"""Lost, late and refused requests below the client, on a real server."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from pylogtable.storage.base import ObjectStore
from pylogtable.storage.open import open_store
from tests.clouds.servers import KINDS, Server
from tests.depth import sample
from tests.proxy import Proxy, WireFault
from tests.storage.wire import WireContract
from tests.storage.wire_jobs import ANSWERS, CASES, FIRST, check_pair


class TestServer(WireContract):
    @pytest.fixture
    def far(self, address: str, far: dict[str, Any]) -> ObjectStore:
        return open_store(address, far)

    @pytest.fixture
    def direct(self, objects: ObjectStore) -> ObjectStore:
        return objects

    @pytest.fixture
    def knows_parts(self, server: Server) -> bool:
        return server.knows_parts


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("name", CASES)
def test_refusal_after_a_put_in_doubt_removes_nothing(
    server: Server,
    proxy: Proxy,
    objects: ObjectStore,
    address: str,
    far: dict[str, Any],
    name: str,
    first: WireFault,
) -> None:
    """The stores share the answers out, unless the run is deep."""
    late = (False, True) if first is WireFault.DELAY else (False,)
    turn = [*KINDS.values()].index(type(server)) + [*CASES].index(name)
    pairs = sample(itertools.product(ANSWERS, late), every=len(KINDS), first=turn)
    for number, (then, late_at_once) in enumerate(pairs):
        away = open_store(f"{address}/{number}", far)
        direct = objects.below(str(number))
        check_pair(proxy, away, direct, CASES[name], first, then, late_at_once=late_at_once)
