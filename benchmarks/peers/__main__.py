"""`python -m benchmarks.peers [--rows 4000000] [--quick]`: Delta, Iceberg and Kafka beside us.

All of them run in one session of Spark 4.1 and get the same rows; `make bench-peers` sets it up.
A peer whose jars cannot be fetched is left out. The exit status is 1 if a row misses its bar.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.peers.figures import results, seconds_table, speed_table
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.operations import Operations, Size
from benchmarks.peers.orders import make_source
from benchmarks.peers.ours import ByFormat, ByLogTable
from benchmarks.peers.peer import Peer
from benchmarks.peers.rounds import Seconds
from benchmarks.peers.session import session
from benchmarks.peers.tables import DELTA_CONF, Delta, Iceberg, iceberg_conf
from benchmarks.result import print_table
from pyspark_pylogtable import register
from tests.engines import jars as tables
from tests.kafka import broker
from tests.kafka import jars as kafka
from tests.maven import MavenUnreachable, fetch

HOME = Path(__file__).parents[2] / ".venv-engines"
FULL = Size(rows=4_000_000, rounds=3, small_appends=30, streams=2, triggers=10)
QUICK = Size(rows=50_000, rounds=1, small_appends=3, streams=1, triggers=2)


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__)
    parser.add_argument("--rows", type=int, help=f"default: {FULL.rows:,}")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK.rows:,} rows, few rounds")
    parser.add_argument("--jars", type=Path, default=HOME, help="where jars are kept")
    asked = parser.parse_args()
    size = QUICK if asked.quick else FULL
    if asked.rows is not None:
        size = dataclasses.replace(size, rows=asked.rows)
    load_before = os.getloadavg()[0]
    measured, peers = run(size, asked.jars)
    load = f"load {load_before:.1f} before the run, {os.getloadavg()[0]:.1f} at its end"
    print(f"{size.rows:,} rows, {os.cpu_count()} cores, {load}\n")
    print(seconds_table(measured, peers), speed_table(measured, peers), sep="\n\n", end="\n\n")
    bars = results(measured)
    print_table(bars)
    return 0 if all(result.reached for result in bars) else 1


def run(size: Size, home: Path) -> tuple[dict[str, Seconds], list[str]]:
    """The seconds of each operation, and the names of the peers."""
    os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable)
    table_jars = _fetched("Delta and Iceberg", tables.JARS, home / "jars")
    connector = _fetched("Kafka", kafka.CONNECTOR, home / "kafka-connector")
    if connector and not _fetched("Kafka", kafka.BROKER, home / "kafka-broker"):
        connector = []
    with ExitStack() as held:
        folder = held.enter_context(tempfile.TemporaryDirectory())
        conf = {**DELTA_CONF, **iceberg_conf(folder)} if table_jars else {}
        spark = session([*table_jars, *connector], folder, conf)
        held.callback(spark.stop)
        register(spark)
        peers: list[Peer] = [ByFormat(spark, folder), ByLogTable(spark, folder)]
        if table_jars:
            peers += [Delta(spark, folder), Iceberg(spark)]
        if connector:
            started = broker.running(home / "kafka-broker", Path(folder, "kafka"))
            peers.append(Kafka(spark, held.enter_context(started)))
        began_us = int(time.time()) * 1_000_000
        source = make_source(spark, size.rows, began_us, f"{folder}/source")
        operations = Operations(spark, peers, source, size, began_us)
        measured = {}
        for operation, seconds in operations.measure(f"{folder}/checkpoints"):
            shown = ", ".join(f"{name} {taken:.2f}" for name, taken in seconds.items())
            print(f"{operation}: {shown}", file=sys.stderr, flush=True)
            measured[operation] = seconds
        return measured, [peer.name for peer in peers]


def _fetched(name: str, coordinates: Sequence[str], folder: Path) -> list[Path]:
    """The jars, or none, with the reason told."""
    try:
        return fetch(coordinates, folder)
    except MavenUnreachable as error:
        print(f"without {name}: {error}", file=sys.stderr)
        return []


if __name__ == "__main__":
    raise SystemExit(main())
