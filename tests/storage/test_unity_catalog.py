"""Unity Catalog's temporary credentials, against a small server of the documented call.

Unity Catalog OSS itself was not tried: its server is not published to Maven Central where these
tests were written. Names of fields are those of its API (`TemporaryCredentials`) and of Databricks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from pylogtable.errors import InvalidRequestError
from pylogtable.runtime import Runtime
from pylogtable.storage import unity_catalog
from pylogtable.storage.credentials import CredentialsError
from pylogtable.storage.open import open_store
from pylogtable.storage.remote import RemoteStore
from pylogtable.storage.unity_catalog import temporary_credentials
from tests.storage.catalog import Catalog, aws_reply, catalog_here
from tests.storage.guarded import guarded, options

URL = "s3://bucket/t"
AWS = aws_reply("token-1")


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    for name in ("DATABRICKS_HOST", "DATABRICKS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(unity_catalog, "Runtime", lambda: Runtime(pause=lambda seconds: None))
    with catalog_here() as one:
        yield one


def given(catalog: Catalog, **more: str) -> dict[str, Any]:
    return {"unity_catalog_url": catalog.url, "unity_catalog_token": "dapi-secret", **more}


def test_an_answer_without_end_is_given_up(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.answer = lambda: (200, b" " * 2**20 + b"{}")
    with pytest.raises(CredentialsError, match="no whole answer in 15 s and 1 MiB"):
        temporary_credentials(URL, given(catalog))
    clock = itertools.count(0.0, 16.0)
    late = Runtime(pause=lambda seconds: None, monotonic=lambda: next(clock))
    monkeypatch.setattr(unity_catalog, "Runtime", lambda: late)
    catalog.answer = lambda: (200, AWS)
    with pytest.raises(CredentialsError, match="no whole answer in 15 s and 1 MiB"):
        temporary_credentials(URL, given(catalog))


@pytest.mark.parametrize(
    ("reply", "known"),
    [
        (AWS, {"key": "AKIAKEY", "secret": "hidden", "token": "token-1"}),
        (
            {"r2_temp_credentials": AWS["aws_temp_credentials"]},
            {"key": "AKIAKEY", "secret": "hidden", "token": "token-1"},
        ),
        ({"azure_user_delegation_sas": {"sas_token": "sig=1"}}, {"sas_token": "sig=1"}),
        ({"azure_aad": {"aad_token": "t"}}, {"token": "t"}),
        ({"gcp_oauth_token": {"oauth_token": "t"}}, {"token": "t"}),
    ],
)
def test_what_the_catalog_gives(
    catalog: Catalog, reply: dict[str, Any], known: dict[str, str]
) -> None:
    catalog.replies = [(200, {**reply, "expiration_time": 4_000_000_000_000})]
    found = temporary_credentials(URL, given(catalog))
    assert found == {**known, "expires_at": 4_000_000_000_000}
    path = "/api/2.1/unity-catalog/temporary-path-credentials"
    asked = {"url": URL, "operation": "PATH_READ_WRITE"}
    assert catalog.asked == [(path, "Bearer dapi-secret", asked)]


def test_the_environment_of_databricks_is_used(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABRICKS_HOST", f"{catalog.url}/")
    monkeypatch.setenv("DATABRICKS_TOKEN", "dapi-other")
    catalog.replies = [(200, AWS)]
    temporary_credentials(URL, {"unity_catalog_operation": "PATH_READ"})
    [(_, authorization, body)] = catalog.asked
    assert authorization == "Bearer dapi-other"
    assert body["operation"] == "PATH_READ"


def test_a_catalog_without_users_gets_no_token(catalog: Catalog) -> None:
    catalog.replies = [(200, AWS)]
    temporary_credentials(URL, {"unity_catalog_url": catalog.url})
    assert catalog.asked[0][1] is None


@pytest.mark.parametrize(
    ("status", "reply", "said"),
    [
        (403, {"error_code": "PERMISSION_DENIED", "message": "no USE\nLOCATION"}, "403 PERMISS"),
        (404, b"<html>dapi-secret</html>", "404 <html>***</html>"),
        (302, b"", "302"),
        (200, b"<html>", "is not the documented one"),
        (200, [], "is not the documented one"),
        (200, {"url": URL}, "its answer has ['url']"),
    ],
)
def test_what_the_catalog_said_is_in_the_error(
    catalog: Catalog, status: int, reply: Any, said: str
) -> None:
    catalog.replies = [(status, reply)]
    with pytest.raises(CredentialsError) as caught:
        temporary_credentials(URL, given(catalog))
    assert said in str(caught.value)
    assert catalog.url in str(caught.value)
    assert "dapi-secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(catalog.asked) == 1, "a token is not sent to another address"


def test_a_busy_catalog_is_asked_again(catalog: Catalog) -> None:
    catalog.replies = [(503, b""), (429, b""), (200, AWS)]
    assert temporary_credentials(URL, given(catalog))["key"] == "AKIAKEY"
    catalog.replies = [(503, b"busy")] * 3
    with pytest.raises(CredentialsError, match="503 busy"):
        temporary_credentials(URL, given(catalog))


def test_a_catalog_that_is_not_there_is_named(catalog: Catalog) -> None:
    with pytest.raises(CredentialsError, match=r"Unity Catalog at http://127\.0\.0\.1:9 gives no"):
        temporary_credentials(URL, {"unity_catalog_url": "http://127.0.0.1:9"})
    with pytest.raises(CredentialsError, match="set DATABRICKS_HOST"):
        temporary_credentials(URL, {})
    for wrong in ("ftp://host", "https://", "https://me:secret@host"):
        with pytest.raises(CredentialsError, match="must be the address") as caught:
            temporary_credentials(URL, {"unity_catalog_url": wrong})
        assert "secret" not in str(caught.value)
    with pytest.raises(CredentialsError, match="PATH_READ_WRITE or PATH_READ, not 'ALL'"):
        temporary_credentials(URL, given(catalog, unity_catalog_operation="ALL"))


def test_a_store_by_the_name_of_the_provider(catalog: Catalog) -> None:
    catalog.replies = [(200, AWS)]
    with guarded() as server:
        server.valid = {"token-1"}
        asked = {**options(server, "s3"), **given(catalog), "credentials": "unity-catalog"}
        store = open_store(URL, asked)
        store.write("a", b"1")
        assert isinstance(store, RemoteStore)
        assert not [name for name in store._client._options if name.startswith("unity")]
        # Another one of the same address, as in the next task of Spark.
        assert open_store(URL, asked).read("a") == b"1"
    assert len(catalog.asked) == 1


def test_options_of_the_catalog_need_its_name(catalog: Catalog) -> None:
    with pytest.raises(InvalidRequestError, match="needs credentials='unity-catalog'"):
        open_store(URL, given(catalog))
