"""Topics in S3 (moto's server), which executors open themselves."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import boto3
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import pylogtable
from tests.builders import IN_FILES, kafka
from tests.conftest import S3_BUCKET, S3_KEY, S3_SECRET
from tests.spark.streams import (
    COPIED,
    EARLIEST,
    copied,
    forget_last_commit,
    places,
    read_stream,
    start,
)
from tests.spark.support import failure, load

STORE = f"{S3_BUCKET}/spark/logs"


@pytest.fixture
def storage_options(s3_endpoint: str) -> dict[str, object]:
    return {
        "key": S3_KEY,
        "secret": S3_SECRET,
        "endpoint_url": s3_endpoint,
        "client_kwargs": {"region_name": "us-east-1"},
    }


def test_write_and_read_from_executors(
    spark: SparkSession, s3_endpoint: str, storage_options: dict[str, object]
) -> None:
    credentials = {"storageOptions": json.dumps(storage_options)}
    rows = spark.range(100).selectExpr("id", "concat('name-', id) AS name").repartition(2)
    writer = rows.write.format("pylogtable").mode("append").options(**credentials)
    writer.options(partitions=2, key="id", **IN_FILES).save(f"s3a://{STORE}/people")

    df = load(spark, f"s3a://{STORE}/people", **credentials)
    assert df.columns == ["partition", "offset", "timestamp", "id", "name"]
    assert sorted((row.id, row.name) for row in df.select("id", "name").collect()) == [
        (n, f"name-{n}") for n in range(100)
    ]
    topic = pylogtable.open_topic(f"s3://{STORE}/people", storage_options=storage_options)
    assert (topic.version, topic.count()) == (1, 100)
    subscribed = load(spark, f"s3://{STORE}", subscribe="people", columns="topic", **credentials)
    assert subscribed.distinct().first().topic == "people"

    for mode in ("extended", "formatted"):
        with redirect_stdout(StringIO()) as shown:
            df.explain(mode)
        assert "pylogtable" in shown.getvalue()
        assert S3_SECRET not in shown.getvalue()

    client = boto3.client(
        "s3",
        endpoint_url=s3_endpoint,
        aws_access_key_id=S3_KEY,
        aws_secret_access_key=S3_SECRET,
        region_name="us-east-1",
    )
    path = topic.segments()["path"][0].as_py()
    client.delete_object(Bucket=S3_BUCKET, Key=f"spark/logs/people/{path}")
    message = failure(df.collect)
    assert "[DATA_LOSS] people-0" in message
    assert S3_SECRET not in message


def test_a_stream_from_topic_to_topic(
    spark: SparkSession, storage_options: dict[str, object], tmp_path: Path
) -> None:
    """Exactly once on S3 too, with no credentials in checkpoint or progress."""
    credentials = {"storageOptions": json.dumps(storage_options)}
    store = pylogtable.open(f"s3://{STORE}", storage_options=storage_options)
    source = store.create_topic("streamed", partitions=2)
    source.append(kafka([f"{n}" for n in range(40)]))

    def query() -> StreamingQuery:
        df = read_stream(spark, f"s3a://{STORE}/streamed", **EARLIEST, **credentials)
        into = f"s3a://{STORE}/copied"
        made = start(df.selectExpr(*COPIED), tmp_path, into, partitions=2, **credentials)
        assert made.awaitTermination(120)
        return made

    told = query().lastProgress
    assert told is not None
    assert told.numInputRows == 40
    copy = store.topic("copied")
    assert copied(copy) == places(source)
    forget_last_commit(tmp_path)
    source.append(kafka(["new"]))
    query()
    query()
    assert copied(copy) == places(source)
    kept = [
        file.read_text() for file in tmp_path.rglob("*") if file.suffix != ".crc" if file.is_file()
    ]
    assert len(kept) > 3
    assert not [text for text in (*kept, told.json) if S3_SECRET in text]


def test_wrong_credentials_are_not_shown(
    spark: SparkSession, storage_options: dict[str, object]
) -> None:
    wrong = {**storage_options, "nonsense": True}
    for options in (json.dumps(wrong), json.dumps(storage_options)[:-1]):
        message = failure(lambda o=options: load(spark, f"s3://{STORE}/x", storageOptions=o))
        assert S3_SECRET not in message
