"""Faults on the wire below the S3 client, with moto behind the proxy."""

from __future__ import annotations

import itertools

import pytest

from pylogtable.storage.base import ObjectStore
from pylogtable.storage.remote import RemoteStore
from tests.conftest import S3_BUCKET, S3_KEY, S3_SECRET
from tests.depth import DEEP
from tests.proxy import Proxy, Refusal, WireFault
from tests.storage.wire import FORBIDDEN, WireContract
from tests.storage.wire_jobs import ANSWERS, CASES, FIRST, check_pair

_folders = itertools.count()


def options(endpoint: str) -> dict[str, object]:
    return {"key": S3_KEY, "secret": S3_SECRET, "endpoint_url": endpoint}


class TestS3(WireContract):
    @pytest.fixture
    def place(self) -> str:
        return f"{S3_BUCKET}/wire{next(_folders)}"

    @pytest.fixture
    def far(self, proxy: Proxy, place: str) -> ObjectStore:
        return RemoteStore("s3", place, options(proxy.url))

    @pytest.fixture
    def direct(self, s3_endpoint: str, place: str) -> ObjectStore:
        return RemoteStore("s3", place, options(s3_endpoint))


EVERY = [
    (name, first, then, late_at_once)
    for name, first, then in itertools.product(CASES, FIRST, ANSWERS)
    for late_at_once in ((False, True) if first is WireFault.DELAY else (False,))
]
USUAL = [
    (name, first, then, late_at_once)
    for name, first, then, late_at_once in EVERY
    if (then is FORBIDDEN and first is WireFault.LOSE_REPLY)
    or (name == "append of files" and first is WireFault.LOSE_REPLY and then.status in (404, 412))
    or (name == "merge" and then is FORBIDDEN)
]


@pytest.mark.parametrize(("name", "first", "then", "late_at_once"), EVERY if DEEP else USUAL)
def test_refusal_after_a_put_in_doubt_removes_nothing(
    proxy: Proxy, s3_endpoint: str, name: str, first: WireFault, then: Refusal, late_at_once: bool
) -> None:
    place = f"{S3_BUCKET}/wire{next(_folders)}"
    far = RemoteStore("s3", place, options(proxy.url))
    direct = RemoteStore("s3", place, options(s3_endpoint))
    check_pair(proxy, far, direct, CASES[name], first, then, late_at_once=late_at_once)
