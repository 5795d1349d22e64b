"""Fetches the jars of Delta and Iceberg for Spark 4.1 from Maven Central.

python -m tests.engines.jars FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.maven import MavenUnreachable, fetch

JARS = (
    "io.delta:delta-spark_4.1_2.13:4.3.1",
    "io.delta:delta-storage:4.3.1",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
)


def main(folder: Path) -> None:
    try:
        fetch(JARS, folder)
    except MavenUnreachable as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
