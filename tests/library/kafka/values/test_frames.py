"""Which schema a payload names, and what the registry says of it."""

from __future__ import annotations

import struct
import sys
import uuid
from typing import Any

import pyarrow as pa
import pytest

from pylogtable import InvalidRequestError, StorageError
from pylogtable.kafka import decoder
from tests.library.kafka.registry import RegistryServer
from tests.library.kafka.values.avro_cases import encode
from tests.library.kafka.values.framing import (
    framed,
    framed_by_guid,
    headers,
    of,
    only_group,
    payloads,
    reasons,
)

#: Of confluent-kafka's client: do not wait between tries.
QUICK = {"max.retries": 0, "timeout": 30}


def row_of(kind: str) -> dict[str, Any]:
    return {"type": "record", "name": "Row", "fields": [{"name": "v", "type": kind}]}


@pytest.fixture
def number(registry: RegistryServer) -> int:
    return registry.register("s", row_of("string"))


def body(text: str) -> bytes:
    return encode(row_of("string"), {"v": text})


def test_payloads_of_several_schemas_are_groups(registry: RegistryServer, number: int) -> None:
    other = registry.register("s", row_of("long"))
    given = payloads(
        framed(other, b"\x02"), None, framed(number, body("a")), framed(other, b"\x04")
    )
    found = of(registry).decode(given)
    shown = [(g.schema_id, g.rows.tolist(), g.values.field(0).to_pylist()) for g in found.groups]
    assert shown == [(number, [2], ["a"]), (other, [0, 3], [1, 2])]
    assert not found.failures


def test_a_column_of_many_chunks_and_slices(registry: RegistryServer, number: int) -> None:
    whole = payloads(b"cut off", framed(number, body("a")), framed(number, body("b")), b"cut off")
    chunks = pa.chunked_array([whole.slice(1, 2), payloads(), payloads(None), whole.slice(2, 1)])
    group = only_group(of(registry).decode(chunks))
    assert group.rows.tolist() == [0, 1, 3]
    assert group.values.field("v").to_pylist() == ["a", "b", "b"]
    assert of(registry).decode(payloads()).groups == ()
    assert of(registry).decode(payloads(None, None)).groups == ()


def test_a_guid_names_a_schema(registry: RegistryServer, number: int) -> None:
    guid = registry.guid(number)
    given = payloads(framed_by_guid(guid, body("a")), framed(number, body("b")))
    found = of(registry).decode(given)
    shown = [(g.schema_id, g.schema_guid, g.rows.tolist()) for g in found.groups]
    assert shown == [(number, None, [1]), (None, str(guid), [0])]


def test_a_header_wins_and_its_payload_has_no_frame(registry: RegistryServer, number: int) -> None:
    by_guid = framed_by_guid(registry.guid(number))
    by_id = framed(number, b"")
    given = payloads(body("a"), body("b"), framed(number, body("c")), None, body("e"), body("f"))
    rows = headers(
        [("other", b"x"), ("__value_schema_id", by_guid)],
        [("__value_schema_id", by_id), ("__value_schema_id", b"only the first counts")],
        [("__key_schema_id", by_guid), ("__value_schema_id", None)],
        [("__value_schema_id", by_guid)],
        None,
        [("__value_schema_id", b"\x07")],
    )
    found = of(registry).decode(given, rows)
    shown = {
        int(row): value
        for group in found.groups
        for row, value in zip(group.rows, group.values.field("v").to_pylist(), strict=True)
    }
    assert shown == {0: "a", 1: "b", 2: "c"}
    assert reasons(found) == {
        4: "it begins with byte 2, where the frame of a schema registry has 0",
        5: "it begins with byte 7, where the frame of a schema registry has 0",
    }


def test_keys_have_a_header_of_their_own(registry: RegistryServer, number: int) -> None:
    rows = headers([("__key_schema_id", framed(number, b"")), ("__value_schema_id", b"\x07")])
    found = of(registry, is_key=True).decode(payloads(body("k")), rows)
    assert only_group(found).values.to_pylist() == [{"v": "k"}]


def test_payloads_without_a_whole_frame_say_so(registry: RegistryServer, number: int) -> None:
    given = payloads(b"", b"\x00\x00", b"{}", b"\x01" * 16, framed(number, body("a")))
    found = of(registry).decode(given)
    assert only_group(found).rows.tolist() == [4]
    assert reasons(found) == {
        0: "it is empty, where the frame of a schema registry has 0",
        1: "it ends after 2 bytes, before the id of its schema",
        2: "it begins with byte 123, where the frame of a schema registry has 0",
        3: "it ends after 16 bytes, before the id of its schema",
    }


def test_an_id_is_found_as_soon_as_it_is_registered(registry: RegistryServer) -> None:
    reader = of(registry)
    given = payloads(framed(1, body("a")))
    found = reader.decode(given)
    assert reasons(found) == {0: "schema 1: not found: schema 1"}
    assert found.failures[0].schema_id == 1
    assert registry.register("s", row_of("string")) == 1
    assert only_group(reader.decode(given)).values.to_pylist() == [{"v": "a"}]


def test_a_schema_is_asked_for_once(registry: RegistryServer, number: int) -> None:
    reader = of(registry)
    for _ in range(3):
        reader.decode(payloads(framed(number, body("a"))))
    assert registry.requests == [f"/schemas/ids/{number}"]


def test_an_unknown_guid(registry: RegistryServer) -> None:
    found = of(registry).decode(payloads(framed_by_guid(uuid.UUID(int=7), b"")))
    assert "00000000-0000-0000-0000-000000000007" in reasons(found)[0]


@pytest.mark.parametrize(
    ("status", "advice"), [(401, "basic.auth.user.info"), (403, "credentials"), (500, "later")]
)
def test_a_registry_that_refuses_is_no_fault_of_the_value(
    registry: RegistryServer, number: int, status: int, advice: str
) -> None:
    registry.status = status
    reader = of(registry, registry_settings=QUICK)
    with pytest.raises(
        StorageError, match=f"{registry.url} answers with HTTP status {status}.*{advice}"
    ):
        reader.decode(payloads(framed(number, body("a"))))


def test_something_else_than_a_registry_answers_404(registry: RegistryServer, number: int) -> None:
    registry.status = 404
    with pytest.raises(StorageError, match="may lack a path"):
        of(registry).decode(payloads(framed(number, body("a"))))


def test_a_page_that_is_no_registry(registry: RegistryServer, number: int) -> None:
    registry.status = 200
    with pytest.raises(StorageError, match=f"answers at {registry.url} is no schema registry"):
        of(registry).decode(payloads(framed(number, body("a"))))
    registry.page = b"<html>Log in</html>"
    with pytest.raises(StorageError, match=f"answers at {registry.url} is no schema registry"):
        of(registry).decode(payloads(framed(number, body("a"))))


@pytest.mark.parametrize(
    ("module", "format"),
    [
        ("fastavro", "avro"),
        ("google.protobuf", "protobuf"),
        ("confluent_kafka.schema_registry", "json-schema"),
    ],
)
def test_a_missing_library_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, module: str, format: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InvalidRequestError, match=r"pip install 'pylogtable\[kafka\]'"):
        decoder(format, schema_registry="http://127.0.0.1:1")


def test_a_registry_that_is_away() -> None:
    reader = decoder("avro", schema_registry="http://127.0.0.1:1", registry_settings=QUICK)
    with pytest.raises(StorageError, match=r"http://127.0.0.1:1 cannot be reached"):
        reader.decode(payloads(framed(1, b"")))
    assert reader.decode(payloads(None)).groups == ()


def test_settings_that_the_client_refuses() -> None:
    with pytest.raises(InvalidRequestError, match=r"cannot be used with these settings.*nonsense"):
        decoder("avro", schema_registry="http://x", registry_settings={"nonsense": 1})
    with pytest.raises(InvalidRequestError, match="the setting url"):
        decoder("avro", schema_registry="http://x", registry_settings={"url": "http://y"})


def test_the_prefix_is_big_endian(registry: RegistryServer, number: int) -> None:
    found = of(registry).decode(payloads(b"\x00" + struct.pack("<I", number) + body("a")))
    assert found.failures[0].schema_id == number << 24
