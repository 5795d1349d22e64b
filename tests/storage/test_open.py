from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pylogtable
from pylogtable.errors import InvalidRequestError, UnsupportedFormatError
from pylogtable.storage.local import LocalStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.storage.open import open_store
from pylogtable.storage.remote import RemoteStore
from pylogtable.storage.wire import Wire


@pytest.fixture(autouse=True)
def _every_client_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


@pytest.mark.parametrize(
    ("url", "kind", "shown"),
    [
        ("/a/b", LocalStore, "file:///a/b"),
        ("/a/b/", LocalStore, "file:///a/b"),
        (Path("/a/b"), LocalStore, "file:///a/b"),
        ("file:///a/b", LocalStore, "file:///a/b"),
        ("file:/a/b", LocalStore, "file:///a/b"),
        ("FILE://localhost/a/b", LocalStore, "file:///a/b"),
        ("/a/with space/%20", LocalStore, "file:///a/with space/%20"),
        ("/a:b@c/d", LocalStore, "file:///a:b@c/d"),
        ("dbfs:/Volumes/x/y", LocalStore, "file:///Volumes/x/y"),
        ("dbfs:///Volumes/x/y", LocalStore, "file:///Volumes/x/y"),
        ("dbfs:/x/y", LocalStore, "file:///dbfs/x/y"),
        ("dbfs:/VolumesNot/y", LocalStore, "file:///dbfs/VolumesNot/y"),
        ("/dbfs/x", LocalStore, "file:///dbfs/x"),
        ("memory://name/a/b/", MemoryStore, "memory://name/a/b"),
        ("memory://name", MemoryStore, "memory://name"),
        ("s3://bucket/a/b/", RemoteStore, "s3://bucket/a/b"),
        ("S3://bucket/a", RemoteStore, "s3://bucket/a"),
        ("s3a://bucket", RemoteStore, "s3://bucket"),
        ("s3n://bucket//a", RemoteStore, "s3://bucket/a"),
        ("gs://bucket/a", RemoteStore, "gs://bucket/a"),
        ("gcs://bucket/a", RemoteStore, "gs://bucket/a"),
        ("./gs:a/b", LocalStore, f"file://{Path.cwd()}/gs:a/b"),
        ("abfs://box@me/a", RemoteStore, "abfss://box@me.dfs.core.windows.net/a"),
        (
            "abfss://box@me.dfs.core.windows.net/a",
            RemoteStore,
            "abfss://box@me.dfs.core.windows.net/a",
        ),
        ("az://box@me/a", RemoteStore, "abfss://box@me.dfs.core.windows.net/a"),
    ],
)
def test_supported_addresses(url: str | os.PathLike[str], kind: type, shown: str) -> None:
    store = open_store(url)
    assert type(store) is kind
    assert store.url == shown


def test_the_url_of_a_store_opens_it_again() -> None:
    for url in ("/a/b", "memory://name/a", "s3://bucket/a", "dbfs:/x"):
        assert open_store(open_store(url).url).url == open_store(url).url


def test_relative_and_home_paths_become_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert open_store("x/../y").url == f"file://{tmp_path}/y"
    assert open_store("c:x").url == f"file://{tmp_path}/c:x"
    assert open_store("~/t").url == "file:///home/me/t"
    assert list(tmp_path.iterdir()) == []


def test_the_azure_account_is_taken_from_the_address() -> None:
    store = open_store("abfss://box@me.dfs.core.windows.net/a")
    assert isinstance(store, RemoteStore)
    assert store._client._options == {"account_name": "me"}
    assert open_store("abfs://box/a", {"account_name": "me"}).url == store.url
    connected = {"AZURE_STORAGE_CONNECTION_STRING": "AccountName=me;AccountKey=a2V5"}
    assert open_store("abfs://box/a", connected).url == store.url
    emulated = {"connection_string": "BlobEndpoint=http://localhost:10000/me"}
    assert open_store("abfs://box/a", emulated).url == store.url
    for named in (
        {"account_name": "you"},
        {"connection_string": "AccountName=you;AccountKey=a2V5"},
    ):
        with pytest.raises(InvalidRequestError, match="'me', and the options name 'you'"):
            open_store("abfss://box@me.dfs.core.windows.net/a", named)
    national = open_store("abfss://box@me.dfs.core.chinacloudapi.cn/a")
    assert isinstance(national, RemoteStore)
    assert national._client._options["account_host"] == "me.blob.core.chinacloudapi.cn"


@pytest.mark.parametrize(
    "url",
    ["hdfs://n/x", "hdfs:/x", "http://h/x", "ftp://h/x", "simplecache::s3://b/k"],
)
def test_other_schemes_are_refused_with_a_list_of_supported_ones(url: str) -> None:
    with pytest.raises(UnsupportedFormatError) as caught:
        open_store(url)
    scheme = url.partition(":")[0]
    assert str(caught.value).startswith(f"{scheme}:")
    assert "s3://" in str(caught.value)
    assert "only if it is absent" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA:s3cr3t@bucket/a",
        "s3://AKIA:s3/cr3t@bucket/a",
        "s3://s3cr3t@bucket/a",
        "abfss://box:s3cr3t@me/a",
        "hdfs://me:s3cr3t@host/a",
        "ftp://me:s3cr3t@host/a",
    ],
)
def test_credentials_in_an_address_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        open_store(url)
    assert "cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("s3:/bucket/a", "begins with s3://"),
        ("wasbs://box@me.blob.core.windows.net/a", "write abfss://"),
        ("azure://box/a", "write abfss://"),
        ("gs:bucket/a", "begins with gs://"),
        ("abfs://box@me@you/a", "names one account, not 'me@you'"),
        ("abfs://box/a", "the account of Azure is not known"),
        ("s3://bucket/a\nb", "not printable"),
        (" s3://bucket/a", "would be a local folder"),
        ("'gs://bucket/a'", "would be a local folder"),
        ("\ufeffabfs://box@me/a", "would be a local folder"),
        ("s3//bucket/a", "would be a local folder"),
        ("box@me.dfs.core.windows.net/a", "would be a local folder"),
    ],
)
def test_an_address_of_another_spelling_says_how_to_write_it(
    url: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ACCOUNT_NAME", "CONNECTION_STRING"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    with pytest.raises(InvalidRequestError, match=wanted):
        open_store(url)


@pytest.mark.parametrize(
    "url", ["", "s3://", "s3:///a", "s3://bucket/../a", "s3://b/a?versionId=1", "file://host/a"]
)
def test_incomplete_addresses_are_refused(url: str) -> None:
    with pytest.raises(InvalidRequestError):
        open_store(url)


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("s3://b/a", {"account_key": "hidden"}, "account_key is an option of Azure"),
        ("gs://b/a", {"anon": True}, "anon is an option of S3 and Azure"),
        ("abfs://b@me/a", {"acount_key": "hidden"}, "did you mean account_key?"),
        ("abfs://b/a", {"connection_sting": "hidden"}, "did you mean connection_string?"),
        ("s3://b/a", {"secret": "hidden", "AWS_SECRET_ACCESS_KEY": "h"}, "are the same option"),
        ("s3://b/a", {"client_kwargs": "hidden"}, "client_kwargs must be a mapping"),
        ("s3://b/a", {"anon": "perhaps"}, "anon must be True or False"),
        ("s3://b/a", {"secret": "hidden\n"}, "secret has a blank or a line break"),
        ("s3://b/a", {"endpoint_url": "http://u:hidden@h"}, "without blanks and credentials"),
        ("s3://b/a", {"credentials": {"secret": "hidden"}}, "Fixed ones are options themselves"),
        ("s3://b/a", {"endpoint_url": "localhost:9000"}, "must be http://host:port or https://"),
        ("s3://b/a", {"client_kwargs": {"endpoint_url": "b:1"}}, "must be http://host:port"),
    ],
)
def test_an_option_that_does_nothing_there_is_refused(
    url: str, options: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        open_store(url, options)
    assert said in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "known"),
    [
        ("s3://b/a", {"requester_pays": True, "key": "k", "secret": "s", "region_name": "r"}),
        ("gs://b/a", {"requests_timeout": 5, "token": "anon", "batch_size": 4}),
        ("abfs://b@me/a", {"max_concurrency": 5, "anon": "true", "use_listings_cache": True}),
    ],
)
def test_options_of_the_client_are_passed_on_and_others_refused(
    url: str, known: dict[str, object]
) -> None:
    store = open_store(url, known)
    assert isinstance(store, RemoteStore)
    assert isinstance(store._client.wire, Wire)
    store = open_store(url, {**known, "zzz": "hidden"})
    with pytest.raises(InvalidRequestError, match="zzz is not an option for") as caught:
        store.read("a")
    assert "hidden" not in str(caught.value)


def test_secrets_are_not_shown_if_the_options_are_no_mapping() -> None:
    with pytest.raises(InvalidRequestError, match="not a str") as caught:
        pylogtable.open("s3://b/a", storage_options='{"secret": "hidden"}')  # type: ignore[arg-type]
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("text", ["http://127.0.0.1:1/", "http://127.0.0.1:1/storage/v1"])
def test_an_endpoint_of_google_may_have_a_path(text: str) -> None:
    store = open_store("gs://b/a", {"endpoint_url": text})
    assert store.endpoint == "http://127.0.0.1:1"


def test_a_missing_client_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedFormatError, match=r"pip install 'pylogtable\[s3\]'"):
        open_store("s3://bucket/a")
    with pytest.raises(UnsupportedFormatError, match=r"pip install 'pylogtable\[gcs\]'"):
        open_store("gs://bucket/a")


def test_clients_are_imported_only_when_used() -> None:
    code = (
        "import sys; from pylogtable.storage.open import open_store; open_store('s3://b/a');"
        "print(sorted({'s3fs', 'fsspec', 'botocore', 'aiobotocore'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
