"""`pylogtable produce`, and reading back what it appended."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import pylogtable
from pylogtable.format.partitioner import partition_for
from tests.builders import T0, kafka, rows, times
from tests.cli.conftest import Run


def test_produced_lines_are_consumed(run: Run, store_dir: Path) -> None:
    topic = pylogtable.open(store_dir).create_topic("t", partitions=3)
    made = run("produce", "t", stdin="a\n\nc")
    assert (made.status, made.err) == (0, "")
    assert made.out == "t: 3 records in 1 commit; 0:[0,3)\n"
    assert rows(topic.read(), "key", "value") == [(None, b"a"), (None, b""), (None, b"c")]
    assert run("consume", "t").out == "a\n\nc\n"
    nothing = run("produce", "t")
    assert (nothing.status, nothing.out) == (0, "t: 0 records in 0 commits\n")


def test_keys_tombstones_headers_and_a_partition(run: Run, store_dir: Path) -> None:
    topic = pylogtable.open(store_dir).create_topic("t", partitions=3)
    made = run("produce", "t", "-K", r"\t", "-Z", "NULL", "-H", "from=test", "--partition", 2,
               "--output", "json", stdin="k1\ta\tb\nk2\tNULL\n")  # fmt: skip
    assert made.json == {
        "topic": "t",
        "records": 2,
        "commits": 1,
        "version": 1,
        "offsets": {"2": [[0, 2]]},
    }
    found = rows(topic.read(), "key", "value", "headers")
    header = [{"key": "from", "value": b"test"}]
    assert found == [(b"k1", b"a\tb", header), (b"k2", None, header)]
    assert run("consume", "t", "-K", "=>").out == "k1=>a\tb\nk2=>\n"
    template = r"%t [%p] at %o: %k/%K %s/%S %h 100%%\x21\n"
    assert run("consume", "t", "--format", template).lines == [
        "t [2] at 0: k1/2 a\tb/3 from=test 100%!",
        "t [2] at 1: k2/2 /-1 from=test 100%!",
    ]


def test_a_header_without_a_value_is_printed_as_kcat_does(run: Run, store_dir: Path) -> None:
    topic = pylogtable.open(store_dir).create_topic("t")
    headers = [{"key": "a", "value": None}, {"key": "b", "value": b""}, {"key": "c", "value": b"1"}]
    kind = topic.schema.field("headers").type
    table = kafka(["k", "l"], ["v", "w"])
    topic.append(table.append_column("headers", pa.array([headers, None], kind)))
    assert run("consume", "t", "--format", "%s: %h\\n").out == "v: a=NULL,b=,c=1\nw: \n"


def test_keys_go_to_the_partitions_that_kafka_chooses(run: Run, store_dir: Path) -> None:
    topic = pylogtable.open(store_dir).create_topic("t", partitions=4)
    run("produce", "t", "-K", ":", stdin="".join(f"k{n}:{n}\n" for n in range(50)))
    expected = partition_for(pa.array([f"k{n}".encode() for n in range(50)]), 4)
    got = {row["key"]: row["partition"] for row in rows(topic.read())}
    assert [got[f"k{n}".encode()] for n in range(50)] == expected.tolist()


def test_json_envelopes_are_those_of_kcat_and_can_be_read_back(run: Run, store_dir: Path) -> None:
    store = pylogtable.open(store_dir)
    first, copy = store.create_topic("a"), store.create_topic("b")
    table = kafka(["k", None, b"\xff"], ["é", None, b"\x00\xfe"], timestamp=times(1, 2, 3.5))
    headers = [[{"key": "h", "value": b"1"}, {"key": "i", "value": b"2"}], None, []]
    first.append(
        table.append_column("headers", pa.array(headers, first.schema.field("headers").type))
    )
    lines = run("consume", "a", "--output", "json").lines
    assert [json.loads(line) for line in lines] == [
        {"topic": "a", "partition": 0, "offset": 0, "tstype": "create", "ts": T0 + 1,
         "headers": ["h", "1", "i", "2"], "key": "k", "payload": "é"},
        {"topic": "a", "partition": 0, "offset": 1, "tstype": "create", "ts": T0 + 2,
         "key": None, "payload": None},
        {"topic": "a", "partition": 0, "offset": 2, "tstype": "create", "ts": T0 + 3,
         "key_base64": "/w==", "payload_base64": "AP4="},
    ]  # fmt: skip
    assert run("produce", "b", "--json", stdin="\n".join(lines)).status == 0
    columns = ["key", "value", "partition", "offset"]
    assert rows(copy.read(), *columns) == rows(first.read(), *columns)
    assert rows(copy.read(), "headers")[0] == headers[0]
    assert run("consume", "b", "--format", "%T ").out == f"{T0 + 1} {T0 + 2} {T0 + 3} "


@pytest.mark.filterwarnings("default")
def test_expired_records_are_told_in_one_line(run: Run, clicks: pylogtable.Topic) -> None:
    line = json.dumps({"key": "k", "payload": "v", "ts": 1000})
    told = run("produce", "clicks", "--json", stdin=line)
    assert told.status == 0
    (only,) = [text for text in told.err.splitlines() if "retention" in text]
    assert only.startswith("pylogtable: 1 of 1 records appended to ")
    told = run("produce", "clicks", "--json", "--output", "json", stdin=line)
    assert json.loads(told.err.splitlines()[0])["warning"].startswith("1 of 1 records")


def test_json_values_may_be_objects(run: Run, clicks: pylogtable.Topic) -> None:
    line = '{"key": 7, "value": {"page": [1, null]}, "headers": {"h": "x"}, "partition": 1}'
    assert run("produce", "clicks", "--json", stdin=f"\n  \n{line}\n").status == 0
    assert run("consume", "clicks", "--from", "-1", "--partition", 1, "-K", " ").out == (
        '7 {"page":[1,null]}\n'
    )


def test_topics_with_columns_take_and_print_objects(run: Run, orders: pylogtable.Topic) -> None:
    line = (
        '{"id": 1, "amount": 9.5, "at": "2024-05-01T12:00:00.25Z", "raw_base64": "/w==", '
        '"day": "2024-05-01", "price": "12.50", "timestamp": "2024-05-01T12:00:00Z"}'
    )
    made = run("produce", "orders", stdin=f'{line}\n{{"id": 2, "raw": "text"}}\n')
    assert (made.status, made.out) == (0, "orders: 2 records in 1 commit; 0:[0,2)\n"), made
    first, second = (json.loads(text) for text in run("consume", "orders").lines)
    assert first == {
        "id": 1,
        "amount": 9.5,
        "at": "2024-05-01T12:00:00.250000Z",
        "raw_base64": "/w==",
        "day": "2024-05-01",
        "price": "12.50",
    }
    assert second["raw"] == "text"
    (full, _) = (json.loads(text) for text in run("consume", "orders", "--output", "json").lines)
    assert full["topic"] == "orders"
    assert (full["partition"], full["offset"]) == (0, 0)
    assert full["timestamp"] == "2024-05-01T12:00:00Z"
    assert run("consume", "orders", "--format", r"%o %k\n").out == "0 1\n1 2\n"
    copied = run("consume", "orders", "--output", "json").out
    assert run("produce", "orders", stdin=copied).status == 0
    assert rows(orders.read(), "at", "raw")[:2] == rows(orders.read(), "at", "raw")[2:]


def test_nested_columns(run: Run, store_dir: Path) -> None:
    inner = pa.struct({"n": pa.int32(), "d": pa.map_(pa.string(), pa.date32())})
    schema = {"l": pa.list_(pa.int64()), "s": inner, "m": pa.map_(pa.string(), pa.float64())}
    topic = pylogtable.open(store_dir).create_topic("t", 1, schema)
    line = '{"l":[1,null],"s":{"n":2,"d":{"x":"2024-05-01"}},"m":{"a":1.5,"b":null}}'
    assert run("produce", "t", stdin=f"{line}\n{{}}\n").status == 0
    assert run("consume", "t").out == f'{line}\n{{"l":null,"s":null,"m":null}}\n'
    for wrong in ('{"l":[1.5]}', '{"s":{"x":1}}', '{"m":[1]}', '{"l":3}', '{"l":"12"}', '{"s":1}'):
        run("produce", "t", stdin=f"{line}\n{wrong}\n").failed("line 2: column ")
    assert topic.count() == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"id": 3', ["line 3: "]),
        ('[{"id": 3}]', ["line 3: it is not a JSON object"]),
        ('{"id": "x"}', ["line 3: column 'id' is int64"]),
        ('{"id": 1.5}', ["line 3: column 'id' is int64"]),
        ('{"id": 3, "amuont": 1}', ["line 3: ", "did you mean 'amount'?"]),
        ('{"id": 99999999999999999999}', ["line 3: column 'id'"]),
        ('{"id": true}', ["line 3: column 'id'", "True is not a whole number"]),
        ('{"id": 3, "price": "dear"}', ["line 3: column 'price'"]),
        ('{"id": 3, "day": 5}', ["line 3: column 'day'"]),
        ('{"id": 3, "raw_base64": "?"}', ["line 3: "]),
        ('{"id": 3, "at": "noon"}', ["line 3: column 'at'", "'noon' is not a time"]),
        ('{"id": 3, "partition": 9}', ["line 3: partition 9 is out of range"]),
    ],
)
def test_a_wrong_line_is_named_and_its_batch_not_appended(
    run: Run, orders: pylogtable.Topic, line: str, words: list[str]
) -> None:
    """Batches before it stay appended. The message says where to continue."""
    good = '{"id": 1}\n{"id": 2}\n'
    ran = run("produce", "orders", stdin=f"{good}{line}\n{good}")
    ran.failed(*words, "; no line is appended")
    assert "none from" not in ran.err
    assert (ran.out, orders.count()) == ("", 0)
    ran = run("produce", "orders", "--batch-bytes", 1, stdin=f"{good}{line}\n{good}")
    assert orders.count() in {0, 2}
    ran.failed(*words)


def test_the_message_says_which_lines_are_appended(run: Run, orders: pylogtable.Topic) -> None:
    """The input is so long that it makes several batches."""
    big = '{"id": 1, "raw": "' + "x" * 2000 + '"}\n'
    ran = run("produce", "orders", "--batch-bytes", 1000, stdin=big * 600 + "{\n")
    ran.failed("line 601: ", "lines 1 to ", " are appended, none from line ")
    appended = int(ran.err.split("lines 1 to ")[1].split()[0])
    assert 0 < orders.count() == appended < 601
    assert f"none from line {appended + 1} on" in ran.err
    assert ran.out == f"orders: {appended} records in 1 commit; 0:[0,{appended})\n"


def test_wrong_lines_are_refused(run: Run, clicks: pylogtable.Topic, orders: object) -> None:
    run("produce", "clicks", "-K", ":", stdin="a:b\nc\n").failed("line 2 has no ':'")
    run("produce", "clicks", "--json", stdin='{"vlaue": 1}\n').failed("line 1: ", "'vlaue'")
    run("produce", "clicks", "--partition", 5, stdin="a\n").failed("no partition 5", "0 to 1")
    run("produce", "clicks", "-K", "", stdin="a\n").failed("--key-separator", status=2)
    run("produce", "clicks", "-H", "x", stdin="a\n").failed("name=value", status=2)
    run("produce", "orders", "-K", ":", stdin="a\n").failed("in JSON", status=2)
    run("produce", "orders", stdin="plain\n").failed("line 1: ")
    run("produce", "clickz", stdin="a\n").failed("did you mean 'clicks'?")
    assert clicks.count() == 4
