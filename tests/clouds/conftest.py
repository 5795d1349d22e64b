"""One server of each kind for a process, with folders in it. Tests of a missing one are skipped."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from pylogtable.storage.base import ObjectStore
from pylogtable.storage.open import open_store
from tests.clouds.servers import BUCKET, KINDS, Server, running
from tests.proxy import Proxy, proxy_before

_folders = itertools.count()


@pytest.fixture(scope="session")
def server_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Server]]:
    """The server of a name. It is started when it is first asked for."""
    started: dict[str, Server] = {}
    with ExitStack() as until_end:

        def get(name: str) -> Server:
            if name not in started:
                kind = KINDS[name]
                program = kind.found()
                if not program:
                    pytest.skip(
                        f"no {name}: make test-clouds brings one, or `{kind.way}`, and "
                        f"{kind.variable} names the program"
                    )
                folder = tmp_path_factory.mktemp(name)
                started[name] = until_end.enter_context(running(program, folder, kind))
            return started[name]

        yield get


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, server_of: Callable[[str], Server]) -> Server:
    return server_of(request.param)


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with proxy_before(server.port) as one:
        yield one


@pytest.fixture
def place() -> str:
    """A folder of the bucket that no other test uses."""
    return f"{BUCKET}/f{next(_folders)}"


@pytest.fixture
def address(server: Server, place: str) -> str:
    """The address of a store, for those who have the options."""
    return f"{server.scheme}://{place}"


@pytest.fixture
def url(server: Server, address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a store, for this process and those it starts, without options."""
    for name, value in server.environment(server.url).items():
        monkeypatch.setenv(name, value)
    return address


@pytest.fixture
def near(server: Server) -> dict[str, Any]:
    """The options without a proxy."""
    return server.options(server.url)


@pytest.fixture
def far(server: Server, proxy: Proxy) -> dict[str, Any]:
    """The options by way of the proxy."""
    return server.options(proxy.url)


@pytest.fixture
def objects(address: str, near: dict[str, Any]) -> ObjectStore:
    return open_store(address, near)
