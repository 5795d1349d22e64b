"""Fetches the jars of Delta and Iceberg for Spark 4.1 from Maven Central.

python -m tests.engines.jars FOLDER
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from pathlib import Path

MAVEN = "https://repo1.maven.org/maven2"
JARS = (
    "io/delta/delta-spark_4.1_2.13/4.3.1/delta-spark_4.1_2.13-4.3.1.jar",
    "io/delta/delta-storage/4.3.1/delta-storage-4.3.1.jar",
    "org/apache/iceberg/iceberg-spark-runtime-4.1_2.13/1.11.0/"
    "iceberg-spark-runtime-4.1_2.13-1.11.0.jar",
)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for jar in JARS:
        place = folder / Path(jar).name
        if place.exists():
            continue
        partial = place.with_suffix(".part")
        try:
            urllib.request.urlretrieve(f"{MAVEN}/{jar}", partial)
        except urllib.error.URLError as error:
            sys.exit(f"{MAVEN}/{jar} cannot be fetched: {error}")
        partial.rename(place)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
