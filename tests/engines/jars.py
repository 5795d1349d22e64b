"""Fetches the jars of Delta, Iceberg and `hadoop-aws` for Spark 4.1 from Maven Central.

python -m tests.engines.jars FOLDER. `hadoop-aws` and its SDK are 640 MB, so they are fetched only
if there is a server of S3 to read from.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.clouds.servers import Versitygw
from tests.maven import MavenUnreachable, fetch

JARS = (
    "io.delta:delta-spark_4.1_2.13:4.3.1",
    "io.delta:delta-storage:4.3.1",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
)
#: In the versions of Spark 4.1: its Hadoop, and the SDK that this Hadoop's POM names.
HADOOP_AWS = (
    "org.apache.hadoop:hadoop-aws:3.4.2",
    "software.amazon.awssdk:bundle:2.29.52",
)


def hadoop_aws_folder(folder: Path) -> Path:
    """Where the jars of `hadoop-aws` are: apart, for sessions that need not load them."""
    return folder / "hadoop-aws"


def main(folder: Path) -> None:
    try:
        fetch(JARS, folder)
        if Versitygw.found():
            fetch(HADOOP_AWS, hadoop_aws_folder(folder))
    except MavenUnreachable as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
