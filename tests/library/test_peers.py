"""The parts of `make bench-peers` that need no Spark, no broker and no network."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers.figures import (
    APPEND,
    BARS,
    RANGE,
    RAW_SCAN,
    results,
    seconds_table,
    speed_table,
)
from benchmarks.peers.peer import middle, middle_offsets
from benchmarks.peers.rounds import medians
from tests.kafka.broker import free_ports, server_properties
from tests.kafka.jars import BROKER, CONNECTOR
from tests.maven import MavenUnreachable, fetch, missing, path_of


class Watch:
    """A clock that goes on only when a step says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_steps_run_in_turn_and_each_round_begins_with_another_one() -> None:
    ran: list[str] = []
    medians({name: lambda name=name: ran.append(name) for name in "abc"}, rounds=3)
    assert "".join(ran) == "abc" + "bca" + "cab" + "abc"


def test_median_leaves_out_the_first_round() -> None:
    watch = Watch()
    seconds = iter([100.0, 3.0, 1.0, 2.0])

    def step() -> None:
        watch.now += next(seconds)

    assert medians({"a": step}, rounds=3, clock=watch) == {"a": 2.0}


@pytest.mark.parametrize(("rows", "low", "high"), [(4_000_000, 2_000_000, 2_040_000), (10, 5, 6)])
def test_range_is_one_percent_in_the_middle_and_never_empty(rows: int, low: int, high: int) -> None:
    assert middle(rows) == (low, high)


def test_range_by_offsets_cuts_each_partition_by_itself() -> None:
    assert middle_offsets({0: 1_000, 1: 200}) == ({0: 500, 1: 100}, {0: 510, 1: 102})


MEASURED = {
    APPEND: {"format": 2.0, "LogTable": 4.0, "Delta": 3.0},
    RAW_SCAN: {"Kafka": 1.0},
}


def test_tables_leave_a_gap_where_nothing_was_measured() -> None:
    peers = ["format", "LogTable", "Delta", "Kafka"]
    assert seconds_table(MEASURED, peers).splitlines()[2:] == [
        f"| {APPEND} | 2.00 | 4.00 | 3.00 | - |",
        f"| {RAW_SCAN} | - | - | - | 1.00 |",
    ]
    assert speed_table(MEASURED, peers).splitlines()[2:] == [
        f"| {APPEND} | 1.50 | - | 0.75 | - |",
        f"| {RAW_SCAN} | - | - | - | - |",
    ]


def test_bars_compare_speeds_and_skip_peers_that_were_left_out() -> None:
    found = results(MEASURED)
    assert [(r.name, r.ratio, r.reached) for r in found] == [
        ("append, format", 1.5, True),
        ("append, LogTable", 0.75, False),
    ]
    assert any(bar.operation == RANGE and bar.peer == "Kafka" for bar in BARS)


def test_jars_are_fetched_once(tmp_path: Path) -> None:
    name = "org.example:thing_2.13:1.0"
    remote = tmp_path / "maven" / path_of(name)
    assert str(remote).endswith("org/example/thing_2.13/1.0/thing_2.13-1.0.jar")
    remote.parent.mkdir(parents=True)
    remote.write_bytes(b"first")
    repository = (tmp_path / "maven").as_uri()
    for _ in range(2):
        (jar,) = fetch([name], tmp_path / "jars", repository)
        remote.write_bytes(b"second")
    assert jar.read_bytes() == b"first"


def test_jar_that_cannot_be_fetched_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(MavenUnreachable, match=r"thing-1\.0\.jar cannot be fetched"):
        fetch(["org.example:thing:1.0"], tmp_path / "jars", tmp_path.as_uri())
    assert list((tmp_path / "jars").iterdir()) == []


def test_jars_are_missing_until_all_are_there(tmp_path: Path) -> None:
    """A fetch that fails leaves the folder, and what was fetched before."""
    wanted = ["org.example:one:1.0", "org.example:two:2.0"]
    assert missing(wanted, tmp_path / "no-folder") == wanted
    (tmp_path / "one-1.0.jar").touch()
    assert missing(wanted, tmp_path) == ["org.example:two:2.0"]


@pytest.mark.parametrize("jars", [BROKER, CONNECTOR], ids=["broker", "connector"])
def test_lists_of_jars_have_one_version_of_each(jars: tuple[str, ...]) -> None:
    artifacts = [coordinate.rpartition(":")[0] for coordinate in jars]
    assert len(set(artifacts)) == len(artifacts)


def test_broker_listens_on_this_machine_only(tmp_path: Path) -> None:
    lines = server_properties(tmp_path, 1111, 2222).splitlines()
    settings = dict(line.split("=", 1) for line in lines)
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:1111,CONTROLLER://127.0.0.1:2222"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:2222"
    assert settings["log.dirs"] == str(tmp_path / "data")


def test_free_ports_differ() -> None:
    assert len(set(free_ports(20))) == 20
