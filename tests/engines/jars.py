"""Fetches the jars of Delta and Iceberg, and of Hadoop for clouds, from Maven Central.

python -m tests.engines.jars FOLDER. What Hadoop needs to read from a server is fetched only if this
server is there: for S3 it is 640 MB.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.clouds.servers import KINDS
from tests.maven import MavenUnreachable, fetch

JARS = (
    "io.delta:delta-spark_4.1_2.13:4.3.1",
    "io.delta:delta-storage:4.3.1",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
)
#: What Spark needs to read from a server itself. Hadoop's modules are those of Spark's own Hadoop.
HADOOP = {
    "versitygw": (
        "org.apache.hadoop:hadoop-aws:3.4.2",
        "software.amazon.awssdk:bundle:2.29.52",  # as the POM of this Hadoop says
    ),
    "azurite": ("org.apache.hadoop:hadoop-azure:3.4.2",),
    "fake-gcs-server": ("com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.26:shaded",),
}


def hadoop_folder(folder: Path) -> Path:
    """Where these are: apart, for sessions that need not load them."""
    return folder / "hadoop"


def main(folder: Path) -> None:
    try:
        fetch(JARS, folder)
        for server, coordinates in HADOOP.items():
            if KINDS[server].found():
                fetch(coordinates, hadoop_folder(folder))
    except MavenUnreachable as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
