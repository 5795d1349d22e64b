"""S3 by way of moto, which answers in S3's shape; it proves nothing about races."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import pickle
import traceback
from collections.abc import Iterator
from threading import Lock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from s3fs.errors import translate_boto_error

from pylogtable.errors import InvalidRequestError, StorageError, UnsupportedFormatError
from pylogtable.storage import s3 as clients
from pylogtable.storage.base import Created, ObjectStore
from pylogtable.storage.open import open_store
from pylogtable.storage.remote import RemoteStore
from tests.storage.contract import COMMIT, SEGMENT, StoreContract
from tests.stores import CountingStore

KEY, SECRET, TOKEN = "AKIAKEYKEYKEY", "sEcReTsEcReT", "tOkEntOkEn"
BUCKET = "bucket"
_folders = itertools.count()


@pytest.fixture(scope="module")
def endpoint(s3_endpoint: str) -> str:
    return s3_endpoint


@pytest.fixture(scope="module")
def connected(endpoint: str) -> RemoteStore:
    return RemoteStore("s3", BUCKET, {"key": KEY, "secret": SECRET, "endpoint_url": endpoint})


@pytest.fixture
def store(connected: RemoteStore) -> RemoteStore:
    return connected.below(f"t{next(_folders)}")


@pytest.fixture
def calls(connected: RemoteStore) -> Iterator[list[str]]:
    """The names of the requests sent, in order."""
    names: list[str] = []

    def note(model: object, **_: object) -> None:
        names.append(model.name)  # type: ignore[attr-defined]

    fs = connected._client.wire._fs
    fs.connect()
    fs.s3.meta.events.register("before-call.s3", note)
    yield names
    fs.s3.meta.events.unregister("before-call.s3", note)


def answer(status: int, code: str, **more: str) -> Exception:
    error = ClientError(
        {
            "Error": {"Code": code, "Message": "m", **more},
            "ResponseMetadata": {"HTTPStatusCode": status},
        },
        "PutObject",
    )
    return translate_boto_error(error)  # type: ignore[no-any-return]


class TestS3Store(StoreContract):
    @pytest.fixture
    def store(self, connected: RemoteStore) -> ObjectStore:
        return connected.below(f"t{next(_folders)}")


def test_every_verb_costs_one_request(store: RemoteStore, calls: list[str]) -> None:
    def cost(step: object) -> list[str]:
        calls.clear()
        step()  # type: ignore[operator]
        return list(calls)

    def stream(size: int) -> None:
        with store.open_output(SEGMENT) as sink:
            sink.write(b"." * size)

    assert cost(lambda: store.read(COMMIT)) == ["GetObject"]
    assert cost(lambda: store.create(COMMIT, b"x")) == ["PutObject"]
    assert cost(lambda: store.create(COMMIT, b"x")) == ["PutObject"]
    assert cost(lambda: store.write(COMMIT, b"x")) == ["PutObject"]
    assert cost(lambda: store.read(COMMIT)) == ["GetObject"]
    assert cost(lambda: list(store.list())) == ["ListObjectsV2"]
    assert cost(lambda: list(store.list("none/"))) == ["ListObjectsV2"]
    assert cost(lambda: store.list_folders()) == ["ListObjectsV2"]
    assert cost(lambda: store.delete(COMMIT)) == ["DeleteObject"]
    assert cost(lambda: stream(100)) == ["PutObject"]
    assert cost(lambda: stream(20 * 2**20)) == [
        "CreateMultipartUpload",
        "UploadPart",
        "CompleteMultipartUpload",
    ]


def test_a_failed_block_aborts_its_upload(store: RemoteStore, calls: list[str]) -> None:
    def fail() -> None:
        with store.open_output(SEGMENT) as sink:
            for _ in range(3):
                sink.write(b"." * 9 * 2**20)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert calls == ["CreateMultipartUpload", *["UploadPart"] * 3, "AbortMultipartUpload"]


def parquet(store: ObjectStore, rows: int) -> int:
    table = pa.table({name: pa.array(range(rows)) for name in "abcdef"})
    with store.open_output(SEGMENT) as sink:
        pq.write_table(table, sink, row_group_size=rows // 2, compression="none")
    (info,) = store.list()
    return info.size_bytes


def test_parquet_costs_one_get_for_the_footer_and_one_for_adjacent_columns(
    store: RemoteStore, calls: list[str]
) -> None:
    size = parquet(store, 100_000)
    calls.clear()
    file = pq.ParquetFile(store.open_input(SEGMENT, size), pre_buffer=True)
    assert calls == ["GetObject"]
    assert file.read_row_group(1).num_rows == 50_000
    assert calls == ["GetObject"] * 2
    file.read_row_group(0, columns=["a", "f"])
    assert calls == ["GetObject"] * 4


def test_a_small_object_costs_one_get_in_all(store: RemoteStore, calls: list[str]) -> None:
    size = parquet(store, 5_000)
    calls.clear()
    assert pq.ParquetFile(store.open_input(SEGMENT, size), pre_buffer=True).read().num_rows == 5_000
    assert calls == ["GetObject"]


def test_an_object_shorter_than_expected_is_an_error(store: RemoteStore) -> None:
    store.write(SEGMENT, b"x" * 10)
    with pytest.raises(StorageError, match="got 10"):
        store.open_input(SEGMENT, 20).read()


def test_the_server_copies_within_itself(
    store: RemoteStore, endpoint: str, calls: list[str]
) -> None:
    """Equal options are the same server and the same rights, whoever wrote them down."""
    options = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT": endpoint}
    source = RemoteStore("s3", f"{BUCKET}/source{next(_folders)}", options)
    data = b"x" * 600_000
    source.write(SEGMENT, data)
    seen: list[str] = []
    source._client.wire._fs.s3.meta.events.register(
        "before-call.s3", lambda model, **_: seen.append(model.name)
    )
    calls.clear()
    store.copy_from(source, SEGMENT, len(data))
    assert sorted([*calls, *seen]) == ["CopyObject", *["HeadObject"] * 3]
    assert store.read(SEGMENT) == data


def test_other_rights_are_no_server_side_copy(
    store: RemoteStore, endpoint: str, calls: list[str]
) -> None:
    options = {"key": KEY + "2", "secret": SECRET, "endpoint_url": endpoint}
    source = RemoteStore("s3", f"{BUCKET}/source{next(_folders)}", options)
    source.write(SEGMENT, b"x")
    calls.clear()
    store.copy_from(source, SEGMENT, 1)
    assert calls == ["PutObject"]
    assert store.read(SEGMENT) == b"x"


def test_a_wrapped_source_is_read_through_its_wrapper(
    store: RemoteStore, connected: RemoteStore, calls: list[str]
) -> None:
    source = CountingStore(connected.below(f"source{next(_folders)}"))
    source.write(SEGMENT, b"x")
    calls.clear()
    store.copy_from(source, SEGMENT, 1)
    assert calls == ["HeadObject", "GetObject", "PutObject"]
    assert source.counts["get"] == 1


@pytest.mark.parametrize(
    ("status", "code"),
    [(403, "AccessDenied"), (501, "NotImplemented"), (405, "MethodNotAllowed")],
)
def test_a_server_that_does_not_copy_is_read_and_written(
    store: RemoteStore,
    calls: list[str],
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    code: str,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise answer(status, code)

    source, target = store.below("here"), store.below("there")
    source.write(SEGMENT, b"x")
    monkeypatch.setattr(store._client.wire._fs, "_cp_file", refuse)
    calls.clear()
    target.copy_from(source, SEGMENT, 1)
    assert calls == ["HeadObject", "HeadObject", "GetObject", "PutObject"]
    assert target.read(SEGMENT) == b"x"


@pytest.mark.parametrize("error", [answer(503, "SlowDown"), answer(500, "InternalError")])
def test_a_failed_copy_of_the_server_is_an_error(
    store: RemoteStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    store.below("here").write(SEGMENT, b"x")
    monkeypatch.setattr(store._client.wire._fs, "_cp_file", fail)
    monkeypatch.setattr(store._client, "patience_seconds", 0.1)
    with pytest.raises(StorageError, match="there/") as caught:
        store.below("there").copy_from(store.below("here"), SEGMENT, 1)
    assert caught.value.__cause__ is error


def test_a_copy_that_the_server_cut_short_is_an_error(
    store: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = store._client.wire._fs
    store.below("here").write(SEGMENT, b"12345")
    monkeypatch.setattr(fs, "_cp_file", lambda origin, path: fs._pipe_file(path, b"123"))
    with pytest.raises(StorageError, match="stored 3 bytes instead of 5"):
        store.below("there").copy_from(store.below("here"), SEGMENT, 5)


def test_modified_time_comes_from_the_store(store: RemoteStore) -> None:
    store.write("a", b"x")
    (info,) = store.list()
    assert info.modified_ms > 1_600_000_000_000


def test_a_missing_bucket_is_an_error_and_not_a_missing_object(endpoint: str) -> None:
    options = {"key": KEY, "secret": SECRET, "endpoint_url": endpoint}
    store = RemoteStore("s3", "no-such-bucket/t", options)
    there = RemoteStore("s3", f"{BUCKET}/there{next(_folders)}", options)
    there.write(COMMIT, b"x")

    def stream() -> None:
        with store.open_output(SEGMENT) as sink:
            sink.write(b"x")

    for call in (
        lambda: store.read(COMMIT),
        lambda: store.create(COMMIT, b"x"),
        lambda: store.write(COMMIT, b"x"),
        lambda: list(store.list()),
        lambda: store.delete(COMMIT),
        lambda: store.open_input(COMMIT, 5).read(),
        lambda: store.copy_from(there, COMMIT, 1),
        lambda: there.copy_from(store, COMMIT, 1),
        stream,
    ):
        with pytest.raises(StorageError):
            call()


@pytest.mark.parametrize(
    "spelling",
    [
        {"key": KEY, "secret": SECRET, "client_kwargs": {"endpoint_url": "URL"}},
        {"key": KEY, "secret": SECRET, "endpoint_url": "URL"},
        {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_SESSION_TOKEN": TOKEN,
            "AWS_REGION": "eu-west-1",
            "AWS_ENDPOINT_URL": "URL",
            "AWS_ALLOW_HTTP": "true",
        },
        {
            "aws_access_key_id": KEY,
            "aws_secret_access_key": SECRET,
            "aws_default_region": "eu-west-1",
            "aws_endpoint_url": "URL",
        },
    ],
)
def test_options_in_every_spelling(endpoint: str, spelling: dict[str, object]) -> None:
    options = {name: endpoint if value == "URL" else value for name, value in spelling.items()}
    if "client_kwargs" in options:
        options["client_kwargs"] = {"endpoint_url": endpoint}
    store = open_store(f"s3a://{BUCKET}/spelling{next(_folders)}", options)
    assert store.create(COMMIT, b"x") is Created.YES
    session = store._client.wire._fs  # type: ignore[attr-defined]
    if any("region" in name.lower() for name in options):
        assert session.s3.meta.region_name == "eu-west-1"


def test_options_from_the_environment(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    store = open_store(f"s3://{BUCKET}/env", None)
    assert store.create(COMMIT, b"x") is Created.YES


def test_secrets_are_never_shown(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"key": KEY, "secret": SECRET, "token": TOKEN, "endpoint_url": endpoint}
    store = open_store(f"s3://no-such-bucket/t{next(_folders)}", options)
    shown = [repr(store), str(store), store.url, repr(vars(store))]
    with caplog.at_level(logging.DEBUG):
        try:
            store.read(COMMIT)
        except StorageError:
            shown.append(traceback.format_exc())
        fs = store._client.wire._fs  # type: ignore[attr-defined]

        def leak(*_: object, **__: object) -> None:
            raise OSError(f"refused {KEY} {SECRET} {TOKEN} at {endpoint}")

        monkeypatch.setattr(fs, "_call_s3", leak)
        with pytest.raises(StorageError) as caught:
            store.read(COMMIT)
        shown += [str(caught.value), repr(caught.value)]
    assert len(shown) == 7
    shown += [str(vars(r)) for r in caplog.records if r.name.startswith("pylogtable")]
    assert len(shown) == 7 + 2  # a line for each request
    assert not [r for r in caplog.records if SECRET in r.getMessage()]
    for text in shown:
        for secret in (KEY, SECRET, TOKEN, "S3FileSystem"):
            assert secret not in text


def test_parts_of_secrets_and_variables_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may repeat what it got, and a client decodes it first."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-of-the-environment")
    signed = "BlobEndpoint=http://x/me;SharedAccessSignature=sv=1&sig=sEcReT%2Fabc%3D"
    for url, options in (("s3://b/t", {}), ("abfs://b/t", {"connection_string": signed})):
        client = open_store(url, options)._client  # type: ignore[attr-defined]
        said = f"refused token-of-the-environment ?sv=1&sig=sEcReT/abc%3D at {signed}"
        shown = client.explain(OSError(said))
        assert "sEcReT" not in shown
        assert "refused" in shown
        assert "of-the-environment" not in shown


def test_credentials_that_have_no_copy_reach_the_client() -> None:
    """Objects of the clouds' own libraries hold locks."""
    store = open_store("gs://bucket/t", {"token": "anon", "session_kwargs": {"lock": Lock()}})
    assert store._client.wire is not None  # type: ignore[attr-defined]


def test_an_endpoint_with_credentials_is_refused() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        open_store("s3://b/t", {"endpoint_url": f"http://{KEY}:{SECRET}@host"})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (answer(412, "PreconditionFailed", Condition="If-None-Match"), Created.EXISTS),
        (answer(412, "PreconditionFailed"), Created.EXISTS),
        (FileExistsError("gcsfs, adlfs"), Created.EXISTS),
        (answer(409, "ConditionalRequestConflict"), Created.UNKNOWN),
        (answer(409, "OperationAborted"), Created.UNKNOWN),
        (answer(500, "InternalError"), Created.UNKNOWN),
        (answer(503, "SlowDown"), Created.UNKNOWN),
        (answer(503, "ServiceUnavailable"), Created.UNKNOWN),
        (answer(400, "RequestTimeout"), Created.UNKNOWN),
        (answer(404, "NoSuchUpload"), Created.UNKNOWN),
        (TimeoutError(), Created.UNKNOWN),
        (ConnectionResetError(), Created.UNKNOWN),
        (OSError(errno.EBUSY, "409"), Created.UNKNOWN),
        (OSError(errno.EINVAL, "412 without its reply"), Created.UNKNOWN),
        (EndpointConnectionError(endpoint_url="http://x"), Created.UNKNOWN),
        (RuntimeError("anything else"), Created.UNKNOWN),
        (answer(403, "AccessDenied"), None),
        (answer(403, "SignatureDoesNotMatch"), None),
        (answer(404, "NoSuchBucket"), None),
        (answer(400, "InvalidArgument"), None),
        (answer(501, "NotImplemented"), Created.UNKNOWN),
        (NoCredentialsError(), None),
        (PermissionError(), None),
    ],
)
def test_failed_create_is_classified_by_its_error(
    store: RemoteStore,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    outcome: Created | None,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(store._client.wire._fs, "_call_s3", fail)
    if outcome is None:
        with pytest.raises(StorageError) as caught:
            store.create(COMMIT, b"x")
        assert error in (caught.value.__cause__, caught.value.__cause__.__cause__)
    else:
        assert store.create(COMMIT, b"x") is outcome


def test_a_client_that_ignores_the_condition_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    again = RemoteStore("s3", BUCKET, {"key": KEY, "secret": SECRET})
    monkeypatch.setattr(clients.importlib.metadata, "version", lambda name: "1.35.20")
    with pytest.raises(UnsupportedFormatError, match="botocore"):
        again.create(COMMIT, b"x")


def test_a_forked_process_connects_again(store: RemoteStore) -> None:
    store.write("a", b"x")
    client = store._client
    before = client.wire
    client._owner = os.getpid() + 1
    assert client.wire is not before
    assert store.read("a") == b"x"
    client._fs = before


def test_tasks_that_bring_the_same_store_connect_once(store: RemoteStore) -> None:
    """To connect takes longer than to write a small file, and a task of Spark brings its store."""
    first = pickle.loads(pickle.dumps(store))
    first.read("none")  # connected clients have written into their options
    second = pickle.loads(pickle.dumps(store))
    assert first._client is second._client
    other = RemoteStore(
        "s3", BUCKET, {"key": "another", "secret": SECRET, "endpoint_url": "http://x"}
    )
    assert pickle.loads(pickle.dumps(other))._client is not first._client
