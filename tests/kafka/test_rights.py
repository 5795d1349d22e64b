"""A broker with passwords and rights: what is refused is named, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

import pylogtable
from pylogtable import StorageError, Store
from pylogtable.kafka import export_topic, import_topic, import_topics
from pylogtable.kafka.source import KafkaSource
from tests.builders import kafka
from tests.kafka.broker import running

USERS = " ".join(f'user_{name}="{name}-secret"' for name in ("admin", "guest"))
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SECURED = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'{LOGIN} username="admin" password="admin-secret" {USERS};'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The controller's own connections have no user.
    "super.users": "User:admin;User:ANONYMOUS",
}


def login(user: str, password: str | None = None) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password or f"{user}-secret",
    }


@pytest.fixture(scope="module")
def secured(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(jars, tmp_path_factory.mktemp("secured"), SECURED) as address:
        yield address


@pytest.fixture(scope="module")
def admin(secured: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": secured, "log_level": 0, **login("admin")})


@pytest.fixture(scope="module")
def orders(secured: str, admin: AdminClient) -> str:
    admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": secured, **login("admin")})
    for number in range(10):
        producer.produce("orders", str(number).encode(), partition=number % 2)
    assert producer.flush(30) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": secured, "group.id": "billing", **login("admin")}
    )
    read = confluent_kafka.TopicPartition("orders", 1, 3)
    consumer.commit(offsets=[read], asynchronous=False)
    consumer.close()
    return "orders"


@pytest.fixture
def logs(tmp_path: Path) -> Store:
    return pylogtable.open(tmp_path / "logs")


def allow(admin: AdminClient, name: str, *operations: str, kind: str = "TOPIC") -> None:
    """Give the guest these rights."""
    rights = [
        AclBinding(
            ResourceType[kind],
            name,
            ResourcePatternType.LITERAL,
            "User:guest",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
    for reply in admin.create_acls(rights).values():
        reply.result(30)


def test_wrong_password_is_named(secured: str, orders: str) -> None:
    with (
        KafkaSource(secured, orders, login("guest", "wrong"), request_seconds=3.0) as source,
        pytest.raises(StorageError, match=r"Authentication failed.*security settings"),
    ):
        source.describe()


def test_each_missing_right_is_named_and_leaves_nothing_behind(
    secured: str, orders: str, admin: AdminClient, logs: Store
) -> None:
    def imported(**more: Any) -> Any:
        more = {"bootstrap_servers": secured, "consumer_settings": login("guest"), **more}
        return import_topic(logs, orders, **more)

    with pytest.raises(StorageError, match=r"Allow it in Kafka \(READ"):
        imported()
    allow(admin, orders, "DESCRIBE")
    with pytest.raises(StorageError, match="asked for its settings") as caught:
        imported()
    assert "DESCRIBE_CONFIGS" in str(caught.value)
    assert "--no-copy-settings" in str(caught.value)
    with pytest.raises(StorageError, match=r"cannot be read: .* Allow it in Kafka \(READ"):
        imported(copy_settings=False)
    assert logs.topics() == []
    allow(admin, orders, "DESCRIBE_CONFIGS", "READ")
    assert imported().records == 10  # without any right on groups
    assert "you may DESCRIBE" in imported(groups=True).left_out["consumer groups"]
    with pytest.raises(StorageError, match="asked for its consumer groups") as caught:
        imported(groups=["billing"])
    assert "DESCRIBE on consumer groups" in str(caught.value)
    assert logs.topic(orders).count() == 10
    allow(admin, "billing", "DESCRIBE", kind="GROUP")
    assert imported(groups=True).groups == {"billing": {1: 3}}


def test_topic_without_rights_stops_no_other(
    secured: str, orders: str, admin: AdminClient, logs: Store
) -> None:
    secret = "secret"
    admin.create_topics([NewTopic(secret, 1, 1)])[secret].result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": secured, **login("admin")})
    producer.produce(secret, b"x")
    assert producer.flush(30) == 0
    allow(admin, orders, "DESCRIBE", "DESCRIBE_CONFIGS", "READ")
    how: dict[str, Any] = {"bootstrap_servers": secured, "consumer_settings": login("guest")}
    done = import_topics(logs, topics=[secret, orders], **how)
    assert done.reports[orders].records == 10
    assert "Allow it in Kafka (READ" in str(done.errors[secret])
    assert logs.topics() == [orders]
    # What may not be described is not listed.
    assert list(import_topics(logs, all_topics=True, **how).reports) == [orders]


def test_export_without_the_right_to_write_moves_no_position(
    secured: str, orders: str, admin: AdminClient, logs: Store
) -> None:
    topic = logs.create_topic("here", 2)
    topic.append(kafka("abc"))
    allow(admin, orders, "DESCRIBE")
    to_kafka: dict[str, Any] = {"bootstrap_servers": secured, "kafka_topic": orders}
    with pytest.raises(
        StorageError, match=r"cannot be written: .* Allow it in Kafka \(READ or WRITE"
    ):
        export_topic(topic, **to_kafka, producer_settings=login("guest"))
    assert topic.group(f"kafka-export-{orders}").positions() == {}
    report = export_topic(topic, **to_kafka, producer_settings=login("admin"))
    assert report.records == 3
