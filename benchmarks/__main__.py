"""`python -m benchmarks [name …] [--quick]`: measure, and print one table of ratios.

The exit status is 1 if a row misses its bar.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from benchmarks import (
    against_delta,
    cli,
    groups,
    growth,
    lookups,
    maintenance,
    many_writers,
    mirror,
    producer,
    publication,
    small_appends,
    spark_batch,
    streaming,
    throughput,
)
from benchmarks.result import Result, print_table

_FULL: dict[str, Callable[[], list[Result]]] = {
    "throughput": lambda: throughput.run(10_000_000),
    "growth": lambda: growth.run(100_000),
    "small_appends": lambda: small_appends.run(10_000),
    "many_writers": lambda: many_writers.run(10),
    "producer": lambda: producer.run(2_000_000),
    "groups": lambda: groups.run(10_000),
    "against_delta": lambda: against_delta.run(100),
    "lookups": lambda: lookups.run(5_000_000),
    "cli": lambda: cli.run(100_000),
    "spark_batch": lambda: spark_batch.run(10_000_000, 100_000),
    "maintenance": lambda: maintenance.run(20_000_000, 2_000_000, 50_000_000, 2_000, 100_000),
    "publication": lambda: publication.run(1_000),
    "mirror": lambda: mirror.run(8_000_000),
    "streaming": lambda: streaming.run(100_000, 10_000_000, 60),
}
_QUICK: dict[str, Callable[[], list[Result]]] = {
    "throughput": lambda: throughput.run(1_000_000),
    "growth": lambda: growth.run(2_000),
    "small_appends": lambda: small_appends.run(1_000),
    "many_writers": lambda: many_writers.run(3),
    "producer": lambda: producer.run(400_000),
    "groups": lambda: groups.run(1_000),
    "against_delta": lambda: against_delta.run(20),
    "lookups": lambda: lookups.run(500_000),
    "cli": lambda: cli.run(1_000),
    "spark_batch": lambda: spark_batch.run(1_000_000, 10_000),
    "maintenance": lambda: maintenance.run(2_000_000, 200_000, 2_000_000, 200, 10_000),
    "publication": lambda: publication.run(50),
    "mirror": lambda: mirror.run(1_000_000),
    "streaming": lambda: streaming.run(2_000, 1_000_000, 10),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(_FULL)}; default: all")
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, or less")
    asked = parser.parse_args()
    unknown = set(asked.names) - set(_FULL)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    chosen = _QUICK if asked.quick else _FULL
    results: list[Result] = []
    for name in asked.names or chosen:
        print(f"running {name} …", file=sys.stderr, flush=True)
        results += chosen[name]()
    print_table(results)
    return 0 if all(result.reached for result in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
