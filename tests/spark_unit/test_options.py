"""The options of `format("pylogtable")`: how they are parsed, and how others are refused."""

from __future__ import annotations

import pickle
from datetime import datetime, timezone
from typing import Any

import pytest

import pylogtable
from pylogtable import InvalidRequestError
from pylogtable.engine import EARLIEST, LATEST, NOT_GIVEN, Position
from pyspark_pylogtable.request.bounds import ANY_TOPIC, Bound, everywhere
from pyspark_pylogtable.request.options import VIEWS, Options
from pyspark_pylogtable.request.parsing import parse_options
from pyspark_pylogtable.request.subscription import Assign, Subscribe, SubscribePattern

EVERY_OPTION = {
    "path": "s3://bucket/logs",
    "storageOptions": '{"key":"k","secret":"s"}',
    "subscribe": "a, b",
    "startingOffsets": "earliest",
    "endingOffsets": '{"a":{"0":5},"b":{"*":-1}}',
    "startingTimestamp": "1700000000000",
    "endingTimestamp": "2024-05-01T12:00:00Z",
    "startingOffsetsByTimestamp": '{"a":{"0":7},"b":{"*":8}}',
    "endingOffsetsByTimestamp": '{"*":{"*":9}}',
    "startingOffsetsByTimestampStrategy": "latest",
    "failOnDataLoss": "false",
    "minPartitions": "6",
    "maxRecordsPerPartition": "1000",
    "includeHeaders": "true",
    "versionAsOf": "3",
    "columns": "offset,amount",
    "view": "latest",
    "topic": " orders ",
    "key": "id",
    "partitions": "4",
    "createTopics": "true",
    "mergeSchema": "true",
    "keepOffsets": "true",
    "txnAppId": "etl",
    "txnVersion": "7",
    "txnExpectedLast": "5",
    "txnNote": '{"read_to": 12}',
    "maxOffsetsPerTrigger": "100",
    "maxBytesPerTrigger": "1000000",
    "minOffsetsPerTrigger": "10",
    "maxTriggerDelay": "5m",
    "group": " billing ",
    "checkpointLocation": "/somewhere",
    "queryName": "clicks",
    "retention.ms": "-1",
    "cleanup.policy": "compact,delete",
}


def refusal(options: dict[str, str]) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        parse_options(options)
    return str(caught.value)


@pytest.mark.parametrize("spell", [str, str.lower, str.upper])
def test_every_option_is_parsed_in_any_case(spell: type[str]) -> None:
    options = parse_options({spell(name): text for name, text in EVERY_OPTION.items()})
    assert options == Options(
        path="s3://bucket/logs",
        storage_options={"key": "k", "secret": "s"},
        subscription=Subscribe(("a", "b")),
        starting=everywhere("startingTimestamp", Position("time", 1_700_000_000_000_000)),
        ending=everywhere("endingTimestamp", Position("time", 1_714_564_800_000_000)),
        starting_strategy="latest",
        fail_on_data_loss=False,
        min_partitions=6,
        max_records_per_partition=1000,
        include_headers=True,
        version_as_of=3,
        columns=("offset", "amount"),
        view="latest",
        topic="orders",
        key=("id",),
        partitions=4,
        create_topics=True,
        merge_schema=True,
        keep_offsets=True,
        txn_app_id="etl",
        txn_version=7,
        txn_expected_last=5,
        txn_note={"read_to": 12},
        max_records_per_trigger=100,
        max_bytes_per_trigger=1_000_000,
        min_records_per_trigger=10,
        max_trigger_delay_ms=300_000,
        group="billing",
        config={"retention.ms": "-1", "cleanup.policy": "compact,delete"},
        given=frozenset(EVERY_OPTION) - {"path", "storageOptions"},
    )


def test_options_can_be_pickled_and_hide_credentials() -> None:
    options = parse_options(EVERY_OPTION)
    assert pickle.loads(pickle.dumps(options)) == options
    assert "secret" not in repr(options)


def test_default_range_is_the_whole_latest_version() -> None:
    assert parse_options({}) == Options()


@pytest.mark.parametrize("key", pylogtable.TOPIC_CONFIG_KEYS)
def test_topic_config_is_passed_on_as_text(key: str) -> None:
    options = parse_options({key: "whatever"})
    assert (options.config, options.given) == ({key: "whatever"}, {key})


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("starting_offsets", "startingOffsets"),
        ("endingoffset", "endingOffsets"),
        ("topics", "topic"),
        ("column", "columns"),
        ("versionAs", "versionAsOf"),
        ("retention.mss", "retention.ms"),
        ("retentionMs", "retention.ms"),
        ("cleanup-policy", "cleanup.policy"),
        ("storage_options", "storageOptions"),
    ],
)
def test_unknown_option_suggests_the_nearest_name(key: str, meant: str) -> None:
    assert f"unknown option {key.lower()!r}; did you mean {meant!r}?" in refusal({key: "1"})


@pytest.mark.parametrize(
    ("key", "named"), [("qqq", "startingOffsets"), ("unclean.leader.x", "cleanup.policy")]
)
def test_option_without_a_similar_name_lists_all_options(key: str, named: str) -> None:
    message = refusal({key: "1"})
    assert "known: " in message
    assert named in message


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("kafka.bootstrap.servers", "no broker here; use path instead"),
        ("kafka.group.id", "startingOffsets"),
        ("groupIdPrefix", "option 'groupIdPrefix': a read belongs to no consumer group"),
        ("kafka.auto.offset.reset", "startingOffsets"),
        ("kafka.enable.auto.commit", "a read commits no positions"),
        ("kafka.isolation.level", "only committed records"),
        ("kafka.security.protocol", "storageOptions"),
        ("kafka.sasl.jaas.config", "storageOptions"),
        ("kafka.ssl.truststore.location", "storageOptions"),
        ("kafka.transactional.id", "txnAppId"),
        ("kafka.enable.idempotence", "txnAppId"),
        ("kafka.partitioner.class", "the key decides"),
        ("kafka.key.deserializer", "columns have types"),
        ("kafka.value.serializer", "columns have types"),
        ("key.serializer", "columns have types"),
        ("value.deserializer", "columns have types"),
        ("kafka.retention.ms", "give 'retention.ms' without 'kafka.'"),
        ("kafka.linger.ms", "there is no broker here; remove it"),
        ("kafkaConsumer.pollTimeoutMs", "there is no consumer that polls"),
        ("fetchOffset.numRetries", "manifest"),
        ("fetchOffset.retryIntervalMs", "manifest"),
        ("partition.metadata.cache.ttl.ms", "not cached"),
        ("paths", "several paths at once are not supported"),
    ],
)
def test_unsupported_kafka_options_are_refused_with_advice(key: str, advice: str) -> None:
    for spelled in (key, key.lower()):
        assert advice in refusal({spelled: "1", "path": "/x"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": " , "}, "No topics to subscribe"),
        ({"subscribePattern": " "}, "Pattern to subscribe is empty"),
        ({"subscribePattern": "a("}, "subscribePattern 'a(' is not a regular expression"),
        ({"assign": ""}, "No topicpartitions to assign"),
        ({"assign": "{}"}, "No topicpartitions to assign"),
        ({"assign": '{"t":[]}'}, "No topicpartitions to assign"),
        ({"assign": "t"}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got t'),
        ({"assign": '["t"]'}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got ["t"]'),
        ({"assign": '{"t":[-1]}'}, "Expected e.g."),
        ({"assign": '{"t":[true]}'}, "Expected e.g."),
        ({"assign": '{"t":0}'}, "Expected e.g."),
        (
            {"subscribe": "a", "assign": '{"a":[0]}'},
            "Only one of the following options can be specified: subscribe, subscribePattern, "
            "assign; given were subscribe and assign",
        ),
        (
            {"startingTimestamp": "soon"},
            "startingTimestamp: Expected a single long value, got 'soon'",
        ),
        ({"endingTimestamp": ""}, "Expected a single long value, got ''"),
        ({"endingTimestamp": "-1"}, "Expected a single long value, got '-1'"),
        ({"startingTimestamp": str(2**63)}, "Expected a single long value"),
        (
            {"startingTimestamp": "2024-05-01 12:00:00"},
            "has no time zone; write 2024-05-01T12:00:00Z if it is in UTC",
        ),
        ({"startingTimestamp": "1.5"}, "ISO 8601 with a zone, such as 2024-05-01T12:00:00Z"),
        ({"timestampAsOf": "yesterday"}, "timestampAsOf: Expected a single long value"),
        ({"timestampAsOf": str(2**62)}, "after the year 9999"),
        ({"startingOffsetsByTimestampStrategy": "newest"}, "must be one of error, latest"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss='yes': must be one of true, false"),
        ({"includeHeaders": ""}, "includeHeaders=''"),
        ({"minPartitions": "0"}, "minPartitions='0': must be a whole number, 1 or more"),
        ({"minPartitions": "-3"}, "must be a whole number, 1 or more"),
        ({"maxRecordsPerPartition": "1e6"}, "maxRecordsPerPartition='1e6': must be a whole number"),
        ({"maxRecordsPerPartition": "9" * 30}, "must be a whole number"),
        ({"maxRecordsPerPartition": str(2**63)}, "must be a whole number"),
        ({"versionAsOf": "-1"}, "versionAsOf='-1': must be a whole number, 0 or more"),
        ({"versionAsOf": "1", "timestampAsOf": "1"}, "versionAsOf and timestampAsOf both choose"),
        ({"columns": ""}, 'must name columns, as a,b or as ["a","b"]'),
        ({"columns": "a,,b"}, "must name columns"),
        ({"columns": '["a",1]'}, "must name columns"),
        ({"columns": '["a"'}, "must name columns"),
        ({"columns": "a,b,a"}, "a is named twice"),
        ({"key": " "}, "must name columns"),
        ({"view": "segmets"}, "did you mean 'segments'?"),
        ({"view": "zzz"}, "must be one of records, latest, segments, partitions, history, groups"),
        ({"topic": " "}, "topic=' ': is blank"),
        ({"partitions": "0"}, "partitions='0': must be a whole number, 1 or more"),
        (
            {"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "15"},
            "minOffsetsPerTrigger(20) is higher than the maxOffsetsPerTrigger(15)",
        ),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger='0': must be a whole number, 1"),
        ({"maxBytesPerTrigger": "1MB"}, "maxBytesPerTrigger='1MB': must be a whole number, 1"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay='soon': must be a duration such as 500ms"),
        ({"maxTriggerDelay": "5 parsecs"}, "must be a duration such as 500ms"),
        ({"group": " "}, "group=' ': is blank"),
        ({"txnAppId": "etl", "txnVersion": "-1"}, "txnVersion='-1'"),
        ({"storageOptions": "[1]"}, "storageOptions must be a JSON object"),
        ({"storageOptions": '{"secret":"hush"'}, "storageOptions must be a JSON object"),
    ],
)
def test_malformed_values_are_refused(options: dict[str, str], message: str) -> None:
    assert message in refusal(options)


def test_malformed_storage_options_are_not_shown() -> None:
    assert "hush" not in refusal({"storageOptions": '{"secret":"hush"'})


@pytest.mark.parametrize(
    ("options", "subscription"),
    [
        ({"subscribe": " a ,,b,a"}, Subscribe(("a", "b"))),
        ({"subscribePattern": " log-.* "}, SubscribePattern("log-.*")),
        ({"assign": '{"t":[1,0,1],"u":[]}'}, Assign({"t": (0, 1)})),
    ],
)
def test_topics_are_chosen_by_subscription(options: dict[str, str], subscription: object) -> None:
    parsed = parse_options(options).subscription
    assert parsed == subscription
    assert pickle.loads(pickle.dumps(parsed)) == parsed


@pytest.mark.parametrize(
    ("name", "matches"), [("log-a", True), ("log-ab", False), ("my-log-a", False), ("log-", False)]
)
def test_a_pattern_matches_whole_names(name: str, matches: bool) -> None:
    assert SubscribePattern("log-.").matches(name) is matches


AT_23 = Position("offset", 23)


@pytest.mark.parametrize(
    ("text", "values", "is_short"),
    [
        ("earliest", {ANY_TOPIC: {None: EARLIEST}}, False),
        (" LATEST ", {ANY_TOPIC: {None: LATEST}}, False),
        (
            '{"a":{"0":23,"1":-2},"b":{"0":-1}}',
            {"a": {0: AT_23, 1: EARLIEST}, "b": {0: LATEST}},
            False,
        ),
        ('{"a":{"0":"Earliest","1":"latest"}}', {"a": {0: EARLIEST, 1: LATEST}}, False),
        ('{"a":{"0":23,"*":-2}}', {"a": {0: AT_23, None: EARLIEST}}, False),
        ('{"*":{"*":-2}}', {ANY_TOPIC: {None: EARLIEST}}, False),
        ('{"0":23,"*":-2}', {ANY_TOPIC: {0: AT_23, None: EARLIEST}}, True),
        ('{"*":23}', {ANY_TOPIC: {None: AT_23}}, True),
        ("{}", {}, False),
    ],
)
def test_offsets(text: str, values: Any, is_short: bool) -> None:
    for side in ("starting", "ending"):
        position = getattr(parse_options({f"{side}Offsets": text}), side)
        assert position == Bound(f"{side}Offsets", values, is_short)
        assert pickle.loads(pickle.dumps(position)) == position


EXPECTED_OFFSETS = 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got '


@pytest.mark.parametrize(
    "text",
    [
        "",
        "early",
        "23",
        "null",
        "[1]",
        '{"a":{"0":23}',
        '{"a":{"0":true}}',
        '{"a":{"0":1.0}}',
        '{"a":{"0":-3}}',
        '{"a":{"0":null}}',
        '{"a":{"0":"23"}}',
        '{"a":{"0":"newest"}}',
        '{"a":{"0":9223372036854775808}}',
        '{"a":{"x":1}}',
        '{"a":{"-1":1}}',
        '{"a":{"01":1}}',
        '{"a":[0]}',
        '{"a":{"0":1},"1":2}',
        '{"a":{"0":1,"0":2}}',
        '{"orders":5}',
        '{"a":' * 100_000,
    ],
)
@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_invalid_offsets_are_refused(option: str, text: str) -> None:
    assert f"{option}: {EXPECTED_OFFSETS}{text[:200]}" in refusal({option: text})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("earliest", "Expected e.g."),
        ('{"a":{"0":true}}', "true is not a time"),
        ('{"a":{"0":1.5}}', "1.5 is not a time"),
        ('{"a":{"0":null}}', "null is not a time"),
        ('{"a":{"0":-2}}', "Expected a single long value, got '-2'"),
        ('{"a":{"0":"noon"}}', "Expected a single long value, got 'noon'"),
        ('{"a":{"0":1},"1":2}', "some entries are by topic and some are not"),
    ],
)
def test_invalid_times_by_partition_are_refused(text: str, message: str) -> None:
    assert message in refusal({"startingOffsetsByTimestamp": text})
    assert message in refusal({"endingOffsetsByTimestamp": text})


NOON = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    "text",
    [
        "1714564800000",
        " 1714564800000 ",
        "2024-05-01T12:00:00Z",
        "2024-05-01T12:00:00z",
        "2024-05-01T12:00:00+00:00",
        "2024-05-01T14:00:00+02:00",
        "2024-05-01 12:00:00Z",
        "2024-05-01T12:00+00:00",
    ],
)
def test_the_forms_of_a_time(text: str) -> None:
    options = parse_options(
        {
            "timestampAsOf": text,
            "startingTimestamp": text,
            "endingOffsetsByTimestamp": f'{{"0":"{text}"}}',
        }
    )
    noon = Position("time", 1_714_564_800_000_000)
    assert options.timestamp_as_of == NOON
    assert options.starting == everywhere("startingTimestamp", noon)
    assert options.ending is not None
    assert options.ending.values == {ANY_TOPIC: {0: noon}}


def test_the_longest_long_is_a_time_after_all_records() -> None:
    ending = parse_options({"endingTimestamp": str(2**63 - 1)}).ending
    assert ending is not None
    position = ending.at("t", 0)
    assert position is not None
    assert 2**63 - 1000 <= position.value <= 2**63 - 1


@pytest.mark.parametrize("side", ["starting", "ending"])
def test_single_time_wins_over_times_and_times_over_offsets(side: str) -> None:
    """Overruled options are still checked."""
    forms = {
        f"{side}Timestamp": "1000",
        f"{side}OffsetsByTimestamp": '{"t":{"0":2000}}',
        f"{side}Offsets": '{"t":{"0":3}}',
    }
    while forms:
        winner = next(iter(forms))
        assert getattr(parse_options(forms), side).option == winner
        del forms[winner]
    bad = {f"{side}Timestamp": "1000", f"{side}Offsets": "nowhere"}
    assert f"{side}Offsets: {EXPECTED_OFFSETS}" in refusal(bad)


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (
            {"a": {0: 5, None: 6}, ANY_TOPIC: {1: 7, None: 8}},
            {"a-0": 5, "a-1": 6, "b-1": 7, "b-2": 8},
        ),
        ({"a": {0: 5}, ANY_TOPIC: {None: 8}}, {"a-0": 5, "a-1": 8}),
        ({"a": {0: 5}}, {"a-0": 5, "a-1": None, "b-0": None}),
    ],
)
def test_most_specific_entry_wins(
    position: dict[str, dict[int | None, int]], expected: dict[str, int | None]
) -> None:
    values = {t: {p: Position("offset", n) for p, n in row.items()} for t, row in position.items()}
    found = Bound("startingOffsets", values)
    for name, value in expected.items():
        topic, partition = name.split("-")
        at = found.at(topic, int(partition))
        assert (None if at is None else at.value) == value


@pytest.mark.parametrize(
    ("text", "names"),
    [("a, b", ("a", "b")), ('["a, b","c"]', ("a, b", "c")), ("Größe", ("Größe",))],
)
def test_column_names(text: str, names: tuple[str, ...]) -> None:
    options = parse_options({"columns": text, "key": text})
    assert (options.columns, options.key) == (names, names)


@pytest.mark.parametrize("path", [None, "", "  "])
def test_missing_path_error_names_the_alternatives(path: str | None) -> None:
    options = parse_options({} if path is None else {"path": path})
    with pytest.raises(InvalidRequestError) as caught:
        options.require_path()
    for way in (
        '.load("<path>")',
        '.option("path", …)',
        "CREATE TEMPORARY VIEW v USING pylogtable OPTIONS (path '<path>')",
        "SELECT … FROM t WITH (path='<path>')",
        'LogTable.for_path(spark, "<path>").create_view("v")',
        "gives a Python source no options",
    ):
        assert way in str(caught.value)


def test_path_is_kept_as_given() -> None:
    assert parse_options({"path": "/data/My Logs"}).require_path() == "/data/My Logs"


def test_create_table_is_known_by_the_properties_that_spark_adds_and_refused() -> None:
    """As seen on 4.0, 4.1 and 4.3."""
    added = {"provider": "pylogtable", "owner": "root", "location": "file:/x"}
    assert "A catalog table (CREATE TABLE" in refusal({**added, "path": "file:/x"})
    assert "unknown option 'owner'" in refusal({"owner": "root"})


FOR_READING = {
    "subscribe": "t",
    "subscribePattern": "t",
    "assign": '{"t":[0]}',
    "startingOffsets": "earliest",
    "endingOffsets": "latest",
    "startingTimestamp": "1",
    "endingTimestamp": "1",
    "startingOffsetsByTimestamp": '{"*":1}',
    "endingOffsetsByTimestamp": '{"*":1}',
    "startingOffsetsByTimestampStrategy": "error",
    "failOnDataLoss": "true",
    "minPartitions": "1",
    "maxRecordsPerPartition": "1",
    "versionAsOf": "1",
    "timestampAsOf": "1",
    "columns": "a",
    "view": "records",
    "keys": "[1]",
}
FOR_WRITING = {"topic": "t", "key": "a", "partitions": "1", "retention.ms": "1"}
TRAVEL = {"versionAsOf", "timestampAsOf"}
CHOICE = {"subscribe", "subscribePattern", "assign", "columns", "view", "keys"}
RANGE = set(FOR_READING) - TRAVEL - CHOICE


@pytest.mark.parametrize("name", FOR_READING)
def test_reading_options_are_refused_by_writes_only(name: str) -> None:
    options = parse_options({name: FOR_READING[name]})
    options.refuse_for("batch read")
    with pytest.raises(InvalidRequestError, match=f"^{name} is for reading, and this is a write"):
        options.refuse_for("write")


@pytest.mark.parametrize("name", FOR_WRITING)
def test_writing_options_are_refused_by_reads_only(name: str) -> None:
    options = parse_options({name: FOR_WRITING[name]})
    options.refuse_for("write")
    with pytest.raises(InvalidRequestError, match=f"^{name} is for writing, and this is a read"):
        options.refuse_for("batch read")


def test_a_refusal_names_all_options_and_what_to_use() -> None:
    options = parse_options({"topic": "t", "txnAppId": "etl", "txnVersion": "1"})
    with pytest.raises(InvalidRequestError) as caught:
        options.refuse_for("batch read")
    assert str(caught.value) == (
        "topic, txnAppId, txnVersion are for writing, and this is a read: remove them; "
        "subscribe chooses the topics to read"
    )


def test_include_headers_is_valid_for_reads_and_writes() -> None:
    options = parse_options({"includeHeaders": "true"})
    options.refuse_for("batch read")
    options.refuse_for("write")


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", [*FOR_READING, "includeHeaders"])
def test_options_that_each_view_accepts(view: str, name: str) -> None:
    refused = {
        "records": set(),
        "latest": RANGE,
        "segments": {*RANGE, "includeHeaders", "keys"},
        "partitions": {*RANGE, "includeHeaders", "keys"},
        "history": {*RANGE, *TRAVEL, "includeHeaders", "keys"},
        "groups": {*RANGE, *TRAVEL, "includeHeaders", "keys"},
    }[view]
    options = parse_options({name: FOR_READING.get(name, "true"), "view": view})
    if name in refused:
        with pytest.raises(InvalidRequestError, match=f"^{name} is .*view={view}"):
            options.refuse_for("batch read")
    else:
        options.refuse_for("batch read")


FOR_STREAM_READING = {
    "maxOffsetsPerTrigger": "1",
    "maxBytesPerTrigger": "1",
    "minOffsetsPerTrigger": "1",
    "group": "g",
}
ENDING = {name for name in FOR_READING if name.startswith("ending")}


@pytest.mark.parametrize("name", FOR_STREAM_READING)
def test_options_of_streams_are_refused_by_everything_else(name: str) -> None:
    options = parse_options({name: FOR_STREAM_READING[name]})
    options.refuse_for("stream read")
    with pytest.raises(InvalidRequestError, match=f"^{name} is for streams"):
        options.refuse_for("batch read")
    for use in ("write", "stream write"):
        with pytest.raises(InvalidRequestError, match=f"^{name} is for reading"):
            options.refuse_for(use)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [*FOR_READING, "includeHeaders"])
def test_options_that_a_stream_accepts(name: str) -> None:
    options = parse_options({name: FOR_READING.get(name, "true")})
    if name in ENDING:
        why = f"^{name} is not valid in streaming queries"
    elif name in TRAVEL:
        why = f"^{name} is of no use in a stream"
    elif name == "keys":
        why = "^keys is for batch reads: a stream reads every new record"
    else:
        options.refuse_for("stream read")
        return
    with pytest.raises(InvalidRequestError, match=why):
        options.refuse_for("stream read")


@pytest.mark.parametrize("view", VIEWS)
def test_only_records_are_streamed(view: str) -> None:
    options = parse_options({"view": view})
    if view == "records":
        options.refuse_for("stream read")
        return
    with pytest.raises(InvalidRequestError, match=f"^view={view} cannot be read as a stream"):
        options.refuse_for("stream read")


def test_max_trigger_delay_needs_min_offsets_per_trigger() -> None:
    options = parse_options({"maxTriggerDelay": "5s"})
    with pytest.raises(InvalidRequestError, match=r"minOffsetsPerTrigger .* is not given"):
        options.refuse_for("stream read")


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [("500ms", 500), ("250", 250), ("30s", 30_000), ("2 min", 120_000), ("1H", 3_600_000)],
)
def test_delays_are_parsed(text: str, delay_ms: int) -> None:
    assert parse_options({"maxTriggerDelay": text}).max_trigger_delay_ms == delay_ms


@pytest.mark.parametrize("name", ["txnAppId", "txnVersion"])
def test_txn_app_id_and_txn_version_need_each_other(name: str) -> None:
    options = parse_options({name: "1"})
    with pytest.raises(InvalidRequestError, match=f"^{name} is given without"):
        options.refuse_for("write")


@pytest.mark.parametrize(
    ("text", "last"), [("7", 7), (" 0 ", 0), ("none", None), (str(None), None), ("NONE", None)]
)
def test_the_expected_last_txn_is_a_number_or_none(text: str, last: int | None) -> None:
    assert parse_options({"txnExpectedLast": text}).txn_expected_last == last
    assert parse_options({}).txn_expected_last is NOT_GIVEN


@pytest.mark.parametrize("text", ["-1", "null", "", "1.5", "last"])
def test_another_expected_last_txn_is_refused(text: str) -> None:
    wanted = f"option txnExpectedLast={text!r}: must be a whole number, 0 or more, or none"
    assert refusal({"txnExpectedLast": text}) == wanted


def test_the_expected_last_txn_needs_a_txn_and_is_refused_for_streams() -> None:
    for given in ({}, {"txnAppId": "etl"}, {"txnVersion": "1"}):
        with pytest.raises(InvalidRequestError, match="is given without txn"):
            parse_options({"txnExpectedLast": "none", **given}).refuse_for("write")
    both = {"txnExpectedLast": "none", "txnAppId": "etl"}
    with pytest.raises(InvalidRequestError, match=r"^txnExpectedLast is of no use in a stream"):
        parse_options(both).refuse_for("stream write")


@pytest.mark.parametrize("text", ["", "{", "NaN", "[-Infinity]", "read_to=12", "[" * 100_000])
def test_a_note_that_is_not_json_is_refused(text: str) -> None:
    assert "must be JSON, such as" in refusal({"txnNote": text})


def test_a_note_needs_a_txn_and_is_refused_for_streams() -> None:
    for given in ({}, {"txnAppId": "etl"}, {"txnVersion": "1"}):
        with pytest.raises(InvalidRequestError, match="is given without txn"):
            parse_options({"txnNote": "null", **given}).refuse_for("write")
    with pytest.raises(InvalidRequestError, match=r"^txnNote is of no use in a stream"):
        parse_options({"txnNote": "1", "txnAppId": "etl"}).refuse_for("stream write")


def test_txn_version_is_refused_for_streams() -> None:
    parse_options({"txnAppId": "etl", "checkpointLocation": "c"}).refuse_for("stream write")
    with pytest.raises(InvalidRequestError, match=r"^txnVersion is the batch's own number"):
        parse_options({"txnVersion": "1"}).refuse_for("stream write")
    for name in ("checkpointLocation", "queryName"):
        with pytest.raises(InvalidRequestError, match=f"^{name} is for streams"):
            parse_options({name: "c"}).refuse_for("write")
