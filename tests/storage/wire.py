"""What every store over HTTP must do when the wire below its client fails.

`tests/stores.py` has stores that fail above the client. Here the client itself lives with the
fault: it may send a request again, and then take the answer to the second for that to the first.
"""

from __future__ import annotations

import pytest

from pylogtable.errors import StorageError
from pylogtable.storage.base import Created, ObjectStore
from tests.depth import DEEP
from tests.proxy import Proxy, Refusal, WireFault
from tests.storage.contract import COMMIT, SEGMENT

IN_DOUBT = (
    WireFault.LOSE_REPLY,
    WireFault.CUT_REPLY,
    WireFault.GARBLE,
    WireFault.DROP,
    WireFault.DELAY,
)
FORBIDDEN = Refusal(403, "AccessDenied")
REFUSALS = (
    FORBIDDEN,
    Refusal(401, "InvalidAccessKeyId"),
    Refusal(400, "ExpiredToken"),
    Refusal(404, "NoSuchBucket"),
)
UNCLEAR = (
    Refusal(409, "ConditionalRequestConflict"),
    Refusal(500, "InternalError"),
    Refusal(503, "SlowDown"),
)
TAKEN = Refusal(412, "PreconditionFailed")
REPEATED = (*IN_DOUBT[1:], Refusal(500), WireFault.LOSE_REPLY, Refusal(503, "SlowDown"))


def hit_put_of(key: str, fault: WireFault | Refusal, proxy: Proxy) -> list[str]:
    """Hit every put of this key. Returns a list of the requests about it, which grows."""
    seen: list[str] = []

    def decide(method: str, path: str) -> WireFault | Refusal | None:
        if not path.partition("?")[0].endswith(key):
            return None
        seen.append(method)
        return fault if method in ("PUT", "POST") else None

    proxy.decide = decide
    return seen


class WireContract:
    """Fixtures: `proxy` before the server, `far` a store that reaches it by way of the proxy, and
    `direct` the same place without it."""

    @pytest.fixture
    def knows_parts(self) -> bool:
        """Whether the server knows a part of an upload when it gets it again."""
        return True

    @pytest.mark.parametrize("fault", IN_DOUBT)
    def test_create_sends_one_request_and_does_not_know(
        self, proxy: Proxy, far: ObjectStore, direct: ObjectStore, fault: WireFault
    ) -> None:
        far.read(COMMIT)  # a connection that is open already may be used again
        seen = hit_put_of(COMMIT, fault, proxy)
        assert far.create(COMMIT, b"mine") is Created.UNKNOWN
        assert len(seen) == 1
        proxy.decide = None
        proxy.deliver_late()
        stored = None if fault is WireFault.DROP else b"mine"
        assert direct.read(COMMIT) == stored

    @pytest.mark.parametrize("refusal", REFUSALS)
    def test_create_raises_if_its_only_request_was_refused(
        self, proxy: Proxy, far: ObjectStore, direct: ObjectStore, refusal: Refusal
    ) -> None:
        seen = hit_put_of(COMMIT, refusal, proxy)
        with pytest.raises(StorageError):
            far.create(COMMIT, b"mine")
        assert len(seen) == 1
        assert direct.read(COMMIT) is None

    @pytest.mark.parametrize("answer", [*UNCLEAR, TAKEN])
    def test_create_asks_once_after_an_unclear_answer(
        self, proxy: Proxy, far: ObjectStore, answer: Refusal
    ) -> None:
        seen = hit_put_of(COMMIT, answer, proxy)
        outcome = far.create(COMMIT, b"mine")
        assert outcome is (Created.EXISTS if answer is TAKEN else Created.UNKNOWN)
        assert len(seen) == 1

    @pytest.mark.parametrize("fault", REPEATED if DEEP else REPEATED[-3:])
    def test_other_requests_are_repeated(
        self,
        proxy: Proxy,
        far: ObjectStore,
        direct: ObjectStore,
        knows_parts: bool,
        fault: WireFault | Refusal,
    ) -> None:
        """One fault for each request of each verb costs one more request, and nothing else."""
        direct.write(COMMIT, b"x" * 1000)
        large = b"y" * (9 << 20)

        def upload() -> bool:
            with far.open_output(SEGMENT) as sink:
                for at in range(0, len(large), 1 << 20):
                    sink.write(large[at : at + (1 << 20)])
            return direct.read(SEGMENT) == large

        verbs = [
            lambda: far.read(COMMIT) == b"x" * 1000,
            lambda: far.read_many([COMMIT, "none"]) == [b"x" * 1000, None],
            lambda: far.size_of(COMMIT) == 1000,
            lambda: far.open_input(COMMIT, 1000).read(10) == b"x" * 10,
            lambda: [entry.key for entry in far.list("_manifest/")] == [COMMIT],
            lambda: far.list_folders() == ["_manifest"],
            lambda: far.write("w", b"1") is None and direct.read("w") == b"1",
            lambda: far.delete("w") is None and direct.read("w") is None,
        ]
        if knows_parts or isinstance(fault, Refusal) or fault is WireFault.DROP:
            verbs.append(upload)
        for verb in verbs:
            asked: list[tuple[str, str]] = []

            def decide(method: str, path: str, asked: list[tuple[str, str]] = asked) -> object:
                asked.append((method, path))
                return fault if asked.count((method, path)) == 1 else None

            proxy.decide = decide  # type: ignore[assignment]
            assert verb()
            proxy.decide = None
            proxy.deliver_late()
            assert {asked.count(one) for one in asked} == {2}
