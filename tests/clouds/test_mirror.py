"""Mirrors between folders of a real server, which copies the files by itself, between the server
and a disk, and from cloud to cloud."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

import pylogtable
from pylogtable import StorageError
from tests.builders import fill, kafka
from tests.clouds.servers import KINDS, LASTING, Server
from tests.depth import rounds
from tests.faults.test_mirror_sigkill import kill_mirrors
from tests.mirrors import check_equal

CONFIG = {"cleanup.policy": "compact,delete", "inline.max.bytes": 0}


@pytest.mark.parametrize("way", ["here to here", "here to disk", "disk to here"])
def test_a_mirror(url: str, way: str, tmp_path: Path) -> None:
    near = str(tmp_path) if way.startswith("disk") else f"{url}/near"
    far = str(tmp_path) if way.endswith("disk") else f"{url}/far"
    source, store = pylogtable.open(near).create_topic("t", 3, config=CONFIG), pylogtable.open(far)
    fill(source)
    report = source.mirror(store, groups=True)
    assert report.files_copied == source.segments().num_rows
    check_equal(source, store.topic("t"))
    source.compact(force=True)
    source.delete_records({0: 1})
    source.alter(config={"inline.max.bytes": 4096})
    fill(source)
    source.mirror(store)
    check_equal(source, store.topic("t"))


def test_a_mirror_from_cloud_to_cloud(server_of: Callable[[str], Server], place: str) -> None:
    """Each store has the copy of the one before it, and the last one has all records. Two of them
    have the same address on different servers."""
    chain = []
    for name in KINDS:
        server = server_of(name)
        url, options = f"{server.scheme}://{place}", server.options(server.url)
        chain.append(pylogtable.open(url, storage_options=options))
    first = chain[0].create_topic("t", 3, config=CONFIG)
    for _ in range(2):
        fill(first)
        for near, far in pairwise(chain):
            near.topic("t").mirror(far, groups=True)
            assert near.topic("t").compare(far.topic("t"))
    last = chain[-1].topic("t")
    assert last.read().read_all() == first.read().read_all()
    assert last.verify(data=True)


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")
@pytest.mark.parametrize("where", ["files", "commits"])
def test_killed_mirrors_beside_writers_and_jobs(url: str, where: str) -> None:
    kill_mirrors(f"{url}/near", f"{url}/far", rounds(2, deep=40), where)


@pytest.mark.parametrize("server", LASTING, indirect=True)
def test_a_mirror_goes_on_after_the_server_was_killed(server: Server, url: str) -> None:
    """The server is killed when the first task of a mirror is done, while others run."""
    source = pylogtable.open(f"{url}/a").create_topic("orders", partitions=3)
    target = pylogtable.open(f"{url}/b")
    for n in range(rounds(4, deep=40)):
        source.append(kafka([f"small {n}"]), txn=("etl", n))
        source.append(kafka([f"{n} {key}" * 20 for key in range(2_000)]))
        is_killed = False

        def kill_once(_: pylogtable.MirrorProgress) -> None:
            nonlocal is_killed
            if not is_killed:
                is_killed = True
                server.kill()
                server.start()

        with suppress(StorageError):
            source.mirror(target, on_progress=kill_once)
        assert is_killed
        source.mirror(target)
        copy = target.topic("orders")
        assert source.compare(copy)
        assert copy.last_txn("etl") == n
    assert copy.verify(data=True)
