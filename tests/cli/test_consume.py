"""`pylogtable consume`: positions, formats and groups."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pylogtable
from pylogtable.cli.app import main
from tests.builders import ints, kafka, rows
from tests.cli.conftest import Run
from tests.library.kafka.registry import registry_server
from tests.library.kafka.values.avro_cases import encode
from tests.library.kafka.values.framing import framed


def test_from_and_to_positions(run: Run, clicks: pylogtable.Topic) -> None:
    def got(*options: object) -> str:
        return run("consume", "clicks", "--format", "%s", *options).out

    assert got() == got("--from", "earliest") == "abcd"
    assert got("--from", "latest") == ""
    assert got("--from", 1, "--partition", 0) == "bc"
    assert got("--from", -1) == "cd"
    assert got("--from", -99) == "abcd"
    assert got("--from", "0:2") == "cd"
    assert got("--to", "0:2,1:0") == "ab"
    assert got("--from", "0:-1,1:latest") == "c"
    assert got("--from", "1h") == got("--from", "PT1H") == got("--to", "0s") == "abcd"
    assert got("--to", "1h") == ""
    assert got("--from", 1, "--to", 2, "--partition", "0") == "b"
    assert got("--count", 2) == "ab"
    assert got("--count", 0) == ""
    assert got("--from", "2000-01-01", "--to", "2100-01-01") == "abcd"
    assert got("--from", "@0", "--to", "e@1") == ""
    assert got("--from", "2100-01-01T00:00:00+02:00") == ""
    assert got("--follow", "--count", 4) == "abcd"
    assert got("--follow", "--to", "latest") == "abcd"


def test_wrong_positions_are_refused(run: Run, clicks: pylogtable.Topic) -> None:
    for position in ("first", "1:x", "0:1,x:2", "0x10", "--", "1.5", "1y", ""):
        run("consume", "clicks", "--from", position).failed("--from", status=2)
    run("consume", "clicks", "--to", "stored").failed("--to", status=2)
    run("consume", "clicks", "--from", "stored").failed("needs --group", status=2)
    run("consume", "clicks", "--from", 4, "--partition", 0).failed("offset 4", "[0, 3)")
    run("consume", "clicks", "--from", 2).failed("partition 1", "[0, 1)", "--partition")
    run("consume", "clicks", "--from", "9:0").failed("no partition 9")
    run("consume", "clicks", "--count", -1).failed("--count", status=2)
    run("consume", "clicks", "--format", "%q").failed("%q is not supported", "%s", status=2)
    run("consume", "clicks", "--format", "%s", "--output", "json").failed("--format", status=2)
    run("consume", "clickz").failed("did you mean 'clicks'?")


def test_all_records_of_keys(run: Run, store_dir: Path) -> None:
    topic = pylogtable.open(store_dir).create_topic("visits", partitions=2)
    homes = topic.append(kafka(["ann", "bob", "ann", None], ["a", "b", "c", "d"])).offsets
    home = next(n for n in homes if rows(topic.read(n, keys=["ann"]), "key"))
    topic.append(kafka(["ann", "bob"], ["e", "f"], partition=ints(1 - home, 1 - home)))
    topic.append(kafka(["ann"], [None]))

    def got(*options: object) -> list[str]:
        return sorted(run("consume", "visits", "--format", "%s", *options).out)

    assert got("--key", "ann") == ["a", "c", "e"]
    assert got("--key", "ann", "--key", "bob") == ["a", "b", "c", "e", "f"]
    assert got("--key", "nobody") == []
    assert got("--key", "ann", "--partition", 1 - home) == ["e"]
    assert got("--key", "ann", "--from", "latest") == []
    assert got("--key", "ann", "--from", f"{home}:1,{1 - home}:latest") == ["c"]
    assert len(got("--key", "ann", "--count", 1)) == 1
    assert got("--key", "ann", "--to", f"{home}:1") == ["a", "e"]
    assert got("--key-json", '{"key": "bob"}', "--follow", "--count", 2) == ["b", "f"]
    told = run("consume", "visits", "--key", "ann", "--output", "json").lines
    assert sorted(str(json.loads(line)["payload"]) for line in told) == ["None", "a", "c", "e"]
    run("consume", "visits", "--key", "ann", "--group", "g").failed("--key", "--group", status=2)


def test_keys_of_other_types(run: Run, store_dir: Path) -> None:
    store = pylogtable.open(store_dir)
    topic = store.create_topic("orders", 2, {"id": pa.int64(), "v": pa.string()}, "id")
    topic.append(pa.table({"id": [1, 2, 1], "v": ["a", "b", "c"]}))
    found = run("consume", "orders", "--key", 1).lines
    assert [json.loads(line)["v"] for line in found] == ["a", "c"]
    run("consume", "orders", "--key", "one").failed("column 'id' is int64, not 'one'", status=2)
    both = store.create_topic("both", 1, {"a": pa.string(), "b": pa.int32()}, ["a", "b"])
    both.append(pa.table({"a": ["x", "y"], "b": ints(1, 2)}))
    run("consume", "both", "--key", "x").failed("a, b; use --key-json", status=2)
    found = run("consume", "both", "--key-json", '{"a": "y", "b": 2}').lines
    assert [json.loads(line)["a"] for line in found] == ["y"]
    store.create_topic("keyless", schema={"n": pa.int64()})
    run("consume", "keyless", "--key", 1).failed("'keyless' has no key columns", "leave --key out")


def test_new_records_of_a_key_are_followed(
    clicks: pylogtable.Topic, store_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append() -> None:
        clicks.append(kafka(["k2", "k1", None, "k1"], ["e", "f", "g", "h"]))

    output = _Output(append)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, write_through=True))
    main(["--store", str(store_dir), "consume", "clicks", "--key", "k1", "-f", "-n", "3"])
    assert output.getvalue() == b"a\nf\nh\n"


def test_a_group_continues_where_it_stopped(run: Run, clicks: pylogtable.Topic) -> None:
    def got(*options: object) -> str:
        return run("consume", "clicks", "-g", "g", "--format", "%s", *options).out

    assert got("--count", 2) == "ab"
    assert clicks.group("g").positions() == {0: 2}
    assert got() == "cd"
    assert clicks.group("g").positions() == {0: 3, 1: 1}
    assert got() == ""
    assert got("--from", "earliest", "--partition", 0, "--count", 1) == "a"
    assert clicks.group("g").positions() == {0: 1, 1: 1}
    clicks.delete_records({0: 2})
    told = run("consume", "clicks", "-g", "g", "--partition", 0, "--count", 0, "--output", "json")
    assert "offset 1 of partition 0" in json.loads(told.err)["warning"]
    passed = run("consume", "clicks", "-g", "g", "--output", "json")
    assert json.loads(passed.out)["payload"] == "c"
    warning = json.loads(passed.err)["warning"]
    assert "position 1 of partition 0 of topic clicks is no longer in the log" in warning
    assert "continues at 2" in warning
    assert clicks.group("g").positions() == {0: 3, 1: 1}


def test_the_program_leaves_its_group(run: Run, clicks: pylogtable.Topic) -> None:
    assert run("consume", "clicks", "-g", "g", "--count", 3).status == 0
    assert run("consume", "clicks", "-g", "g").lines == ["d"]
    assert [row.member for row in clicks.group("g").describe()] == [None, None]


def test_positions_of_choice_are_refused_while_the_group_has_members(
    run: Run, clicks: pylogtable.Topic
) -> None:
    with clicks.consumer("g", "worker") as consumer:
        assert consumer.assignment() == (0, 1)
        alone = run("consume", "clicks", "-g", "g", "--from", "earliest")
        assert alone.status == 1
        assert "active member(s) (worker-" in alone.err
        reset = run("groups", "reset", "g", "--topic", "clicks", "--to-earliest", "--execute")
        assert reset.status == 1
        assert "active member(s) (worker-" in reset.err
        assert "remove dead ones with `pylogtable groups remove-member`" in reset.err


class _Output(io.BytesIO):
    """Calls `after` once, when the first bytes have been written."""

    def __init__(self, after: Callable[[], None]) -> None:
        super().__init__()
        self._after = [after]

    def write(self, data: Any) -> int:
        written = super().write(data)
        while self._after:
            self._after.pop()()
        return written


def test_records_that_another_member_took_over_are_printed_again_with_a_warning(
    clicks: pylogtable.Topic, store_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member is thrown out of its group while its records are printed."""
    states = store_dir / "clicks" / "_groups" / "g"

    def throw_out() -> None:
        newest = max(states.iterdir())
        found = json.loads(newest.read_bytes())
        found |= {"members": {}, "number": found["number"] + 1, "commit_id": "x"}
        found.pop("checksum", None)
        newest.with_name(f"{found['number']:020d}.json").write_text(json.dumps(found))

    out, err = _Output(throw_out), io.StringIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, "utf-8", write_through=True))
    monkeypatch.setattr(sys, "stderr", err)
    assert main(["consume", "clicks", "-g", "g"]) == 0
    assert out.getvalue() == b"a\nb\nc\nd\n" * 2
    assert "printed again" in err.getvalue()
    assert clicks.group("g").positions() == {0: 3, 1: 1}


def test_a_group_gets_a_position_in_an_empty_partition(run: Run, store_dir: Path) -> None:
    topic = pylogtable.open(store_dir).create_topic("t", partitions=2)
    assert run("consume", "t", "--group", "g").status == 0
    assert topic.group("g").positions() == {0: 0, 1: 0}


def test_offsets_removed_by_compaction_count_as_read(run: Run, store_dir: Path) -> None:
    topic = pylogtable.open(store_dir).create_topic("t", config={"cleanup.policy": "compact"})
    topic.append(kafka(["a", "b", "a"], ["1", "2", None]))
    topic.compact(force=True)
    assert run("consume", "t", "--group", "g", "--format", "%o:%s ").out == "1:2 2: "
    assert topic.group("g").positions() == {0: 3}


def test_large_batches_are_printed_completely(run: Run, store_dir: Path) -> None:
    topic = pylogtable.open(store_dir).create_topic("t")
    many = 40_000
    topic.append(kafka([None] * many, [b"%d" % n for n in range(many)]))
    assert run("consume", "t").lines == [str(n) for n in range(many)]
    assert run("consume", "t", "--count", 20_000, "--from", 7).lines[-1] == "20006"


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5}},
        {"name": "offset", "type": ["null", "bytes"]},
    ],
}


def test_values_in_avro_are_printed_as_json(run: Run, store_dir: Path) -> None:
    topic = pylogtable.open(store_dir).create_topic("t")
    with registry_server() as registry:
        number = registry.register("t-value", ORDER)
        key = registry.register("t-key", "string")
        value = encode(ORDER, {"id": 7, "price": Decimal(5), "offset": b"\xff"})
        values = [framed(number, value), b"\x00damaged", None]
        topic.append(kafka([framed(key, encode("string", "k")), None, None], values))
        options = (
            "--value-format",
            "avro",
            "--key-format",
            "avro",
            "--schema-registry",
            registry.url,
        )
        got = run("consume", "t", "--format", "%o %k %s;", *options)
        shown = '{"id":7,"price":"5","offset":"/w=="}'
        assert got.out == f'0 "k" {shown};1  \x00damaged;2  ;'
        assert "value at offset 1 of partition 0 could not be decoded" in got.err
        lines = run("consume", "t", "--output", "json", *options).lines
        first, second, third = map(json.loads, lines)
        assert (first["key"], first["payload"]) == ("k", json.loads(shown))
        assert second["payload"] == "\x00damaged"
        assert third["payload"] is None


def test_decoding_needs_bytes_and_a_format(run: Run, store_dir: Path, tmp_path: Path) -> None:
    store = pylogtable.open(store_dir)
    store.create_topic("typed", schema={"a": "bigint"})
    store.create_topic("t")
    run("consume", "typed", "--value-format", "json").failed("has columns: ", status=2)
    run("consume", "t", "--schema-registry", "http://x").failed("need --value-format", status=2)
    run("consume", "t", "--value-format", "avro").failed("--schema-registry")
