"""Consumer groups on S3, by way of moto."""

from __future__ import annotations

import pytest

import pylogtable
from pylogtable import CommitConflictError
from tests.builders import clock_of_servers, kafka, limited
from tests.conftest import S3_BUCKET, S3_KEY, S3_SECRET


def test_group_on_s3_from_first_commit_to_deletion(s3_endpoint: str) -> None:
    clock = clock_of_servers()
    options = {"key": S3_KEY, "secret": S3_SECRET, "endpoint_url": s3_endpoint}
    url = f"s3://{S3_BUCKET}/groups"
    store = pylogtable.open(url, storage_options=options, clock=clock)
    store = limited(store, group_states_kept=2, group_clean_every=4)
    topic = store.create_topic("orders")
    topic.append(kafka(["a"] * 10))
    one, other = topic.group("billing"), topic.group("billing")
    assert one.positions() == other.positions() == {}
    for offset in range(6):
        one.commit({0: offset})
    with pytest.raises(CommitConflictError):
        other.commit({0: 3})
    opened = pylogtable.open_topic(f"{url}/orders", storage_options=options, clock=clock)
    assert opened.group("billing").positions() == {0: 5}
    assert opened.group("billing").lag().records == 5
    assert store.groups() == {"billing": ["orders"]}
    one.reset("earliest")
    one.delete()
    assert opened.groups() == []
    assert topic.verify()
