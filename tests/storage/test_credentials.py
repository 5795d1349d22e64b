"""Credentials that renew: who is asked, when, and what becomes of the requests meanwhile."""

from __future__ import annotations

import asyncio
import datetime
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pylogtable.errors import InvalidRequestError, StorageError
from pylogtable.runtime import Runtime
from pylogtable.storage import azure
from pylogtable.storage.base import Created, NotSentError
from pylogtable.storage.credentials import (
    ASK_AGAIN_MS,
    RENEW_BEFORE_MS,
    CredentialsError,
    Provider,
    portable_options,
    provider_in,
)
from pylogtable.storage.open import open_store
from pylogtable.storage.remote import RemoteStore
from tests.storage.guarded import EXPIRED, Guarded, Tokens, credentials, guarded, options

HOUR_MS = 3_600_000
URL = "s3://bucket/t"


class Time:
    def __init__(self) -> None:
        self.now_ms = 1_800_000_000_000

    def runtime(self) -> Runtime:
        return replace(Runtime(), clock=lambda: self.now_ms)


class Asked:
    """Gives credentials that live for a time, if it has one."""

    def __init__(self, time: Time, lives_ms: int | None = HOUR_MS) -> None:
        self.time = time
        self.lives_ms = lives_ms
        self.times = 0
        self.error: Exception | None = None

    def __call__(self) -> Mapping[str, Any]:
        self.times += 1
        if self.error is not None:
            raise self.error
        given: dict[str, Any] = {"key": f"key-{self.times}", "secret": "hidden"}
        if self.lives_ms is not None:
            given["expires_at"] = self.time.now_ms + self.lives_ms
        return given


@pytest.fixture
def time() -> Time:
    return Time()


def provider_of(ask: Any, time: Time, protocol: str = "s3") -> Provider:
    return Provider(ask, protocol, URL, {}, time.runtime())


def test_credentials_are_asked_for_again_before_they_expire(time: Time) -> None:
    ask = Asked(time)
    provider = provider_of(ask, time)
    assert provider.current()["key"] == provider.current()["key"] == "key-1"
    time.now_ms += HOUR_MS - RENEW_BEFORE_MS - 1
    assert provider.current()["key"] == "key-1"
    time.now_ms += 1
    assert provider.current()["key"] == "key-2"
    assert ask.times == 2


def test_those_that_live_for_a_short_time_are_kept_for_most_of_it(time: Time) -> None:
    ask = Asked(time, lives_ms=60_000)
    provider = provider_of(ask, time)
    provider.current()
    time.now_ms += 47_999
    assert provider.current()["key"] == "key-1"
    time.now_ms += 1
    assert provider.current()["key"] == "key-2"


def test_those_that_do_not_expire_are_kept_until_the_store_refuses_them(time: Time) -> None:
    ask = Asked(time, lives_ms=None)
    provider = provider_of(ask, time)
    provider.current()
    time.now_ms += 1000 * HOUR_MS
    assert provider.current()["key"] == "key-1"
    provider.forget(provider.generation)
    assert provider.current()["key"] == "key-2"
    provider.forget(1)  # a late refusal of the first ones says nothing about the second
    assert provider.current()["key"] == "key-2"


def test_valid_credentials_are_used_while_there_are_no_new_ones(time: Time) -> None:
    ask = Asked(time)
    provider = provider_of(ask, time)
    provider.current()
    ask.error = OSError("the catalog is down")
    time.now_ms += HOUR_MS - RENEW_BEFORE_MS
    assert provider.current()["key"] == provider.current()["key"] == "key-1"
    assert ask.times == 2, "it is not asked for each request"
    time.now_ms += ASK_AGAIN_MS
    assert provider.current()["key"] == "key-1"
    assert ask.times == 3
    time.now_ms += RENEW_BEFORE_MS
    with pytest.raises(CredentialsError, match="the catalog is down"):
        provider.current()
    ask.error = None
    assert provider.current()["key"] == "key-5"


def test_many_threads_ask_once(time: Time) -> None:
    ask = Asked(time)
    provider = provider_of(ask, time)
    together = threading.Barrier(32)

    def current(_: int) -> str:
        together.wait()
        return str(provider.current()["key"])

    with ThreadPoolExecutor(32) as threads:
        assert set(threads.map(current, range(32))) == {"key-1"}
    assert ask.times == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"key": "k"}, "must return key and secret as text, and returned key (str)"),
        ({"key": "k", "secret": None}, "must return key and secret"),
        ({"key": "k", "secret": b"s"}, "returned key (str), secret (bytes)"),
        (["k"], "must return a mapping, not list"),
        ({"key": "k", "secret": "s", "expires_at": "soon"}, "soon"),
        ({"key": "k", "secret": "s", "expires_at": True}, "expires_at must be"),
        ({"key": "k", "secret": "s", "expires_at": float("nan")}, "expires_at must be"),
        ({"key": "k", "secret": "s", "expires_at": 10**30}, "expires_at must be"),
        ({"key": "k", "secret": "s", "expires_at": "9" * 400}, "expires_at must be"),
        ({"key": "k", "secret": "s", "expires_at": 1_700_000_000}, "have expired already"),
    ],
)
def test_what_is_wrong_with_credentials_is_said_once(time: Time, given: Any, said: str) -> None:
    def wrong() -> Any:
        return given

    with pytest.raises(CredentialsError) as caught:
        provider_of(wrong, time).current()
    assert said in str(caught.value)
    assert "wrong" in str(caught.value), "the provider is named"
    assert URL in str(caught.value)


@pytest.mark.parametrize(
    "expires_at",
    [
        1_800_003_600,
        1_800_003_600_000,
        "1800003600",
        "2027-01-15T09:00:00Z",
        "2027-01-15T10:00:00+01:00",
        datetime.datetime(2027, 1, 15, 9),
        datetime.datetime(2027, 1, 15, 9, tzinfo=datetime.timezone.utc),
    ],
)
def test_times_of_expiry(time: Time, expires_at: Any) -> None:
    provider = provider_of(lambda: {"key": "k", "secret": "s", "Expiration": expires_at}, time)
    provider.current()
    time.now_ms = 1_800_003_600_000 - RENEW_BEFORE_MS - 1
    assert not provider.is_due
    time.now_ms += 1
    assert provider.is_due


def test_a_reply_of_sts_is_taken_as_it_is(time: Time) -> None:
    known = {"AccessKeyId": "k", "SecretAccessKey": "s", "SessionToken": "t"}
    reply = {"Credentials": {**known, "Expiration": datetime.datetime(2027, 1, 15, 9)}}
    assert provider_of(lambda: reply, time).current()["token"] == "t"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file"),
        ("{", "is not the JSON of"),
        ("[]", "is not the JSON"),
    ],
)
def test_a_key_file_of_google_that_cannot_be_used_is_named(
    tmp_path: Path, content: str | None, said: str
) -> None:
    file = tmp_path / "key.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(CredentialsError) as caught:
        open_store("gs://bucket/t", {"token": str(file)}).read("a")
    assert said in str(caught.value)
    assert "key.json" in str(caught.value)


def test_a_function_gets_the_arguments_that_it_needs(time: Time) -> None:
    got: list[tuple[object, ...]] = []

    def none(timeout: int = 5) -> Mapping[str, Any]:
        got.append((timeout,))
        return {"key": "k", "secret": "s"}

    def one(url: str) -> Mapping[str, Any]:
        got.append((url,))
        return {"key": "k", "secret": "s"}

    def two(url: str, options: Mapping[str, Any], more: int = 1) -> Mapping[str, Any]:
        got.append((url, options, more))
        return {"key": "k", "secret": "s"}

    for ask in (none, one, two):
        provider_of(ask, time).current()
    assert got == [(5,), (URL,), (URL, {}, 1)]


def test_options_that_contradict_each_other_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(InvalidRequestError, match="give credentials or key and secret"):
        open_store(URL, {"credentials": fixed_credentials, "key": "k", "secret": "s"})
    with pytest.raises(InvalidRequestError, match="unity_catalog_url needs credentials="):
        open_store(URL, {"unity_catalog_url": "https://host"})
    with pytest.raises(InvalidRequestError, match="must be a function"):
        open_store(URL, {"credentials": 3})
    with pytest.raises(InvalidRequestError, match="'no_such:thing' is not found"):
        open_store(URL, {"credentials": "no_such:thing"})
    named = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    with pytest.raises(InvalidRequestError, match="give credentials or key and secret"):
        open_store(URL, {"credentials": fixed_credentials, **named})
    keyed = "AccountName=a;AccountKey=azurite"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", keyed)
    for given in ({"connection_string": keyed}, {}):
        with pytest.raises(
            InvalidRequestError, match="connection_string with AccountKey"
        ) as caught:
            open_store("abfs://box/t", {"credentials": fixed_sas, **given}).read("x")
        assert "azurite" not in str(caught.value)


def fixed_credentials() -> Mapping[str, Any]:
    return {"key": "k", "secret": "s", "token": str(os.getpid())}


def fixed_sas() -> Mapping[str, Any]:
    return {"sas_token": "sig=1"}


def test_a_name_or_a_function_of_a_module_goes_to_other_processes() -> None:
    for ask in (fixed_credentials, f"{__name__}:fixed_credentials"):
        store = open_store(URL, {"credentials": ask})
        again: RemoteStore = pickle.loads(pickle.dumps(store))
        assert isinstance(store, RemoteStore)
        assert again._client.is_same_as(store._client)
        provider = again._client._provider
        assert provider is not None
        assert provider.current()["key"] == "k"


def test_a_lambda_stays_in_its_process() -> None:
    store = open_store(URL, {"credentials": lambda: {"key": "k"}})
    with pytest.raises(InvalidRequestError, match=r"cannot be sent to another process.*'package"):
        pickle.dumps(store)
    with pytest.raises(InvalidRequestError, match="is not known to Spark's workers"):
        portable_options({"credentials": lambda: {"key": "k"}})


def test_spark_gets_the_name_of_a_function() -> None:
    name = f"{__name__}:fixed_credentials"
    assert portable_options({"credentials": fixed_credentials, "a": 1}) == {
        "credentials": name,
        "a": 1,
    }
    assert portable_options({"credentials": name}) == {"credentials": name}


def test_those_who_open_the_same_address_share_a_provider_with_a_name() -> None:
    name = f"{__name__}:fixed_credentials"
    first = provider_in({"credentials": name, "a": 1}, "s3", URL)
    assert provider_in({"credentials": name, "a": 1}, "s3", URL) is first
    assert provider_in({"credentials": name, "a": 2}, "s3", URL) is not first


# --- Requests ---


@pytest.fixture(params=["s3", "gs", "abfs"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    return str(request.param)


@pytest.fixture
def server(protocol: str) -> Iterator[Guarded]:
    with guarded() as one:
        *refusal, one.error_code = EXPIRED[protocol]
        one.refusal = refusal[0], refusal[1]
        yield one


@pytest.fixture
def tokens(server: Guarded, protocol: str) -> Tokens:
    return Tokens(server, protocol)


@pytest.fixture
def store(server: Guarded, protocol: str, tokens: Tokens) -> RemoteStore:
    given = {**options(server, protocol), "credentials": tokens}
    store = open_store(f"{protocol}://bucket/t", given)
    assert isinstance(store, RemoteStore)
    return store


def test_a_put_that_was_refused_is_sent_with_new_credentials(
    server: Guarded, store: RemoteStore, tokens: Tokens
) -> None:
    store.write("a", b"1")
    assert tokens.asked == 1
    server.valid = set()
    assert store.create("b", b"2") is Created.YES
    assert tokens.asked == 2
    assert [is_served for *_, is_served in server.seen] == [True, False, True]
    assert store.create("b", b"3") is Created.EXISTS
    assert server.objects["t/b"] == b"2"


def test_the_first_credentials_may_be_old_ones(
    server: Guarded, protocol: str, tokens: Tokens
) -> None:
    given = iter([lambda: credentials(protocol, "old"), tokens])
    ask = {"credentials": lambda: next(given)()}
    store = open_store(f"{protocol}://bucket/t", {**options(server, protocol), **ask})
    assert store.create("a", b"1") is Created.YES
    assert [is_served for *_, is_served in server.seen] == [False, True]


def test_what_a_provider_gave_is_not_shown(server: Guarded, protocol: str) -> None:
    status, body = server.refusal
    server.refusal = status, body.replace(b"old", b"no token-1").replace(b"Inv", b"no token-1")
    ask = {"credentials": lambda: credentials(protocol, "token-1")}
    store = open_store(f"{protocol}://bucket/t", {**options(server, protocol), **ask})
    with pytest.raises(StorageError) as caught:
        store.read("a")
    assert "token-1" not in str(caught.value)
    assert "no ***" in str(caught.value)


def test_every_verb_goes_on_after_a_refusal(
    server: Guarded, store: RemoteStore, tokens: Tokens
) -> None:
    store.write("a", b"12345")
    verbs: list[Callable[[], bool]] = [
        lambda: store.read("a") == b"12345",
        lambda: store.size_of("a") == 5,  # a HEAD of S3, whose refusal has no code
        lambda: store.read_many(["a", "none"]) == [b"12345", None],
        lambda: store.write("a", b"12345") is None,
    ]
    for verb in verbs:
        server.valid = set()
        before = tokens.asked
        assert verb()
        assert tokens.asked == before + 1


def test_requests_that_are_refused_at_once_ask_once(
    server: Guarded, store: RemoteStore, tokens: Tokens
) -> None:
    store.write("a", b"1")
    server.valid = set()
    with ThreadPoolExecutor(32) as threads:
        read = list(threads.map(lambda _: store.read("a"), range(32)))
    assert read == [b"1"] * 32
    assert tokens.asked == 2


def test_new_credentials_that_are_refused_too_are_an_error(
    server: Guarded, store: RemoteStore, tokens: Tokens, protocol: str
) -> None:
    store.write("a", b"1")

    class Refused(set[str]):
        def __contains__(self, token: object) -> bool:
            return False

    def refused() -> Mapping[str, Any]:
        given = tokens()
        server.valid = Refused()
        return given

    provider = store._client._provider
    assert provider is not None
    provider._given = refused
    server.valid = Refused()
    for verb in (lambda: store.read("a"), lambda: store.create("b", b"1")):
        server.seen.clear()
        with pytest.raises(StorageError) as caught:
            verb()
        assert len(server.seen) == 2
        assert "token-" not in str(caught.value)


def test_credentials_are_renewed_before_the_store_refuses_them(
    server: Guarded, store: RemoteStore, tokens: Tokens, time: Time
) -> None:
    provider = store._client._provider
    assert provider is not None
    provider._runtime = time.runtime()
    tokens.more = {"expires_at": time.now_ms + HOUR_MS}
    store.write("a", b"1")
    time.now_ms += HOUR_MS - RENEW_BEFORE_MS
    tokens.more = {"expires_at": time.now_ms + HOUR_MS}
    assert store.read("a") == b"1"
    assert tokens.asked == 2
    assert all(is_served for *_, is_served in server.seen)


def test_a_provider_that_fails_after_a_refusal_is_the_error(
    server: Guarded, store: RemoteStore
) -> None:
    store.write("a", b"1")

    def broken() -> Mapping[str, Any]:
        raise RuntimeError("the vault is sealed")

    provider = store._client._provider
    assert provider is not None
    provider._given = broken
    server.valid = set()
    with pytest.raises(NotSentError, match=r"broken gives no credentials.*the vault is sealed"):
        store.create("b", b"1")
    with pytest.raises(CredentialsError, match=r"broken gives no credentials.*the vault is sealed"):
        store.read("a")
    assert "t/b" not in server.objects


def test_a_token_of_entra_id_is_not_kept_by_azures_client(time: Time) -> None:
    """It is sent over HTTPS only, so no server is asked here."""
    given = iter(["token-1", "token-2"])
    provider = provider_of(
        lambda: {"token": next(given), "expires_at": time.now_ms + HOUR_MS}, time, "abfs"
    )
    token: Any = azure._credential(provider, "account")

    def sent() -> tuple[str, int]:
        found = asyncio.run(token.get_token("scope"))
        return found.token, found.expires_on

    assert sent() == sent() == ("token-1", 0), "0: it asks us again for the next request"
    provider.forget(provider.generation)
    assert sent() == ("token-2", 0)


def test_azure_has_one_kind_of_credentials_at_a_time(time: Time) -> None:
    kinds = iter([{"sas_token": "sig=1"}, {"token": "t"}])
    provider = provider_of(lambda: next(kinds), time, "abfs")
    azure._credential(provider, "account")
    provider.forget(provider.generation)
    with pytest.raises(CredentialsError, match="must return sas_token as text, and returned"):
        provider.current()


# --- Without options ---


@pytest.fixture
def nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    # No machine role is looked for: that takes seconds.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        (URL, "AWS_ACCESS_KEY_ID"),
        ("gs://bucket/t", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("abfss://box@account.dfs.core.windows.net/t", "AZURE_STORAGE_ACCOUNT_KEY"),
    ],
)
def test_missing_credentials_are_one_error(nothing_is_known: None, url: str, advice: str) -> None:
    store = open_store(url, {"timeout_seconds": 5})
    for verb in (
        lambda: store.create("a", b"1"),
        lambda: store.read("a"),
        lambda: store.write("a", b""),
    ):
        with pytest.raises(StorageError) as caught:
            verb()
        assert "no credentials were found" in str(caught.value)
        assert advice in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_put_without_credentials_was_not_sent(nothing_is_known: None) -> None:
    for url in (URL, "gs://bucket/t", "abfss://box@account.dfs.core.windows.net/t"):
        with pytest.raises(NotSentError):
            open_store(url).create("a", b"1")


def test_an_unknown_profile_is_named(nothing_is_known: None) -> None:
    with pytest.raises(NotSentError, match=r"no credentials were found.*nobody"):
        open_store(URL, {"profile": "nobody"}).create("a", b"1")


def test_a_profile_is_used(nothing_is_known: None, tmp_path: Any, monkeypatch: Any) -> None:
    file = tmp_path / "credentials"
    file.write_text(
        "[me]\naws_access_key_id=k\naws_secret_access_key=s\naws_session_token=token-1\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    with guarded() as server:
        server.valid = {"token-1"}
        open_store(URL, {**options(server, "s3"), "profile": "me"}).write("a", b"1")
        monkeypatch.setenv("AWS_PROFILE", "me")
        open_store(URL, options(server, "s3")).write("b", b"1")
        assert sorted(server.objects) == ["t/a", "t/b"]
