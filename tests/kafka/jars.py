"""The jars of a Kafka broker, those of Spark's Kafka connector, and a schema registry.

`BROKER` is what Maven resolves for `org.apache.kafka:kafka_2.13:4.1.0` at run time, and a logger.
The list is fixed, so that nobody needs Maven, and a run tomorrow has the same broker.

python -m tests.kafka.jars FOLDER fetches them into folders below it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.maven import MavenUnreachable, fetch

BROKER = (
    "com.dynatrace.hash4j:hash4j:0.22.0",
    "com.fasterxml.jackson.core:jackson-annotations:2.19.0",
    "com.fasterxml.jackson.core:jackson-core:2.19.0",
    "com.fasterxml.jackson.core:jackson-databind:2.19.0",
    "com.fasterxml.jackson.dataformat:jackson-dataformat-csv:2.19.0",
    "com.fasterxml.jackson.dataformat:jackson-dataformat-yaml:2.19.0",
    "com.fasterxml.jackson.datatype:jackson-datatype-jdk8:2.19.0",
    "com.github.ben-manes.caffeine:caffeine:3.2.0",
    "com.github.luben:zstd-jni:1.5.6-10",
    "com.google.re2j:re2j:1.8",
    "com.typesafe.scala-logging:scala-logging_2.13:3.9.5",
    "com.yammer.metrics:metrics-core:2.2.0",
    "commons-beanutils:commons-beanutils:1.9.4",
    "commons-collections:commons-collections:3.2.2",
    "commons-digester:commons-digester:2.1",
    "commons-logging:commons-logging:1.3.2",
    "commons-validator:commons-validator:1.9.0",
    "net.sf.jopt-simple:jopt-simple:5.0.4",
    "net.sourceforge.argparse4j:argparse4j:0.7.0",
    "org.apache.kafka:kafka-clients:4.1.0",
    "org.apache.kafka:kafka-coordinator-common:4.1.0",
    "org.apache.kafka:kafka-group-coordinator-api:4.1.0",
    "org.apache.kafka:kafka-group-coordinator:4.1.0",
    "org.apache.kafka:kafka-metadata:4.1.0",
    "org.apache.kafka:kafka-raft:4.1.0",
    "org.apache.kafka:kafka-server-common:4.1.0",
    "org.apache.kafka:kafka-server:4.1.0",
    "org.apache.kafka:kafka-share-coordinator:4.1.0",
    "org.apache.kafka:kafka-storage-api:4.1.0",
    "org.apache.kafka:kafka-storage:4.1.0",
    "org.apache.kafka:kafka-tools-api:4.1.0",
    "org.apache.kafka:kafka-transaction-coordinator:4.1.0",
    "org.apache.kafka:kafka_2.13:4.1.0",
    "org.apache.logging.log4j:log4j-api:2.24.3",
    "org.apache.logging.log4j:log4j-core:2.24.3",
    "org.bitbucket.b_c:jose4j:0.9.6",
    "org.hdrhistogram:HdrHistogram:2.2.2",
    "org.jspecify:jspecify:1.0.0",
    "org.lz4:lz4-java:1.8.0",
    "org.pcollections:pcollections:4.0.2",
    "org.scala-lang:scala-library:2.13.16",
    "org.scala-lang:scala-reflect:2.13.16",
    "org.slf4j:slf4j-api:1.7.36",
    "org.slf4j:slf4j-simple:1.7.36",
    "org.xerial.snappy:snappy-java:1.1.10.7",
    "org.yaml:snakeyaml:2.4",
)

#: For Spark 4.1. Its own version of the token provider is not in Maven Central.
CONNECTOR = (
    "org.apache.commons:commons-pool2:2.12.1",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
)

#: Apicurio's, which has the API of Confluent's. The last one that runs on Java 17.
REGISTRY = ("io.apicurio:apicurio-registry-app:3.0.9:all@tar.gz",)


def main(folder: Path) -> None:
    try:
        fetch(BROKER, folder / "kafka-broker")
        fetch(CONNECTOR, folder / "kafka-connector")
        fetch(REGISTRY, folder / "kafka-registry")
    except MavenUnreachable as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
