"""The options of `format("pylogtable")` as one object, and which options each use refuses.

Names are those of Spark's Kafka connector where the meaning is the same. No option is ignored: one
that would have no effect is refused, with the reason and the alternative. Spark creates a source
before it says whether the source will read or write, as a batch or as a stream. `refuse_for` is
called once that is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from pylogtable import InvalidRequestError
from pylogtable.engine import NOT_GIVEN, ExpectedLast
from pyspark_pylogtable.request.bounds import Bound
from pyspark_pylogtable.request.option_names import (
    ENDING,
    NO_CATALOG_TABLES,
    RANGE,
    READ,
    STREAM_READ,
    STREAM_WRITE,
    TIME_TRAVEL,
    WRITE,
)
from pyspark_pylogtable.request.subscription import Subscription

#: "read" is a batch read or a stream read; which of them is not known yet.
Use = Literal["read", "batch read", "stream read", "write", "stream write"]

VIEWS = ("records", "latest", "segments", "partitions", "history", "groups")

#: The Kafka connector's default for maxTriggerDelay.
DEFAULT_DELAY_MS = 15 * 60_000

_ALTERNATIVES = {
    "topic": "subscribe chooses the topics to read",
    "partitions": "assign reads some partitions, minPartitions makes more Spark tasks",
    "subscribe": "topic names the topic to write to",
}


@dataclass(frozen=True, slots=True)
class Options:
    """The values of all options. Options that were not given have their defaults.

    `given` has the names of the options that were given, without path and storageOptions.
    """

    path: str | None = None
    # Not in repr, because it may hold credentials.
    storage_options: dict[str, Any] | None = field(default=None, repr=False)
    subscription: Subscription | None = None
    starting: Bound | None = None
    ending: Bound | None = None
    starting_strategy: str = "error"
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_headers: bool = False
    version_as_of: int | None = None
    timestamp_as_of: datetime | None = None
    columns: tuple[str, ...] | None = None
    view: str = "records"
    keys: tuple[Any, ...] | None = None
    topic: str | None = None
    key: tuple[str, ...] | None = None
    partitions: int | None = None
    create_topics: bool = False
    merge_schema: bool = False
    keep_offsets: bool = False
    txn_app_id: str | None = None
    txn_version: int | None = None
    txn_expected_last: ExpectedLast = NOT_GIVEN
    txn_note: Any = None
    max_records_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_records_per_trigger: int | None = None
    max_trigger_delay_ms: int = DEFAULT_DELAY_MS
    group: str | None = None
    config: dict[str, str] = field(default_factory=dict)
    given: frozenset[str] = frozenset()

    def require_path(self) -> str:
        """The path; raises if none was given."""
        if self.path is None:
            raise InvalidRequestError(
                'no path: give it with .load("<path>"), .save("<path>") or .option("path", …). '
                f"{NO_CATALOG_TABLES}"
            )
        return self.path

    @property
    def txn(self) -> tuple[str, int] | None:
        """App id and version, which make a batch write happen exactly once; None without them."""
        if self.txn_app_id is None or self.txn_version is None:
            return None
        return self.txn_app_id, self.txn_version

    def refuse_for(self, use: Use) -> None:
        """Raise if an option was given that has no effect for `use`, or for the chosen view."""
        if use in ("write", "stream write"):
            self._refuse((*READ, *STREAM_READ), "for reading, and this is a write")
        else:
            self._refuse((*WRITE, *STREAM_WRITE), "for writing, and this is a read")
        match use:
            case "write":
                self._refuse_for_batch_write()
            case "stream write":
                why = "the batch's own number in a stream, so that each batch is written once"
                self._refuse(("txnVersion",), f"{why}; in foreachBatch give it to the write")
                why = "of no use in a stream: a batch that runs again has its number again"
                self._refuse(("txnExpectedLast",), why)
                why = "of no use in a stream, which keeps its positions in its checkpoint"
                self._refuse(("txnNote",), why)
            case "stream read":
                self._refuse_for_stream()
            case _:
                if use == "batch read":
                    self._refuse(STREAM_READ, "for streams, and this is a batch read")
                self._refuse_for_view()

    def _refuse_for_batch_write(self) -> None:
        self._refuse(STREAM_WRITE, "for streams, and this is a batch write")
        if (self.txn_app_id is None) != (self.txn_version is None):
            have, lack = "txnVersion", "txnAppId"
            if self.txn_version is None:
                have, lack = lack, have
            raise InvalidRequestError(
                f"{have} is given without {lack}: a write that happens once needs both, a name for "
                "the job and a number that grows with each of its writes"
            )
        if self.txn_expected_last is not NOT_GIVEN and self.txn is None:
            raise InvalidRequestError(
                "txnExpectedLast is given without txnAppId and txnVersion: it is the last "
                "txnVersion of a txnAppId before this write"
            )
        if "txnNote" in self.given and self.txn is None:
            raise InvalidRequestError(
                "txnNote is given without txnAppId and txnVersion: it is kept with the last "
                "txnVersion of a txnAppId"
            )

    def _refuse_for_stream(self) -> None:
        self._refuse(ENDING, "not valid in streaming queries, which have no end")
        why = "of no use in a stream, which always reads the newest version"
        self._refuse(TIME_TRAVEL, why)
        why = "for batch reads: a stream reads every new record; filter the DataFrame instead"
        self._refuse(("keys",), why)
        if self.view != "records":
            raise InvalidRequestError(
                f"view={self.view} cannot be read as a stream: every commit changes all of it. "
                "Stream the records, or read the view as a batch, for example in foreachBatch"
            )
        if "maxTriggerDelay" in self.given and self.min_records_per_trigger is None:
            raise InvalidRequestError(
                "maxTriggerDelay limits how long minOffsetsPerTrigger may delay a batch, and "
                "minOffsetsPerTrigger is not given: give both or neither"
            )

    def _refuse_for_view(self) -> None:
        if self.view == "latest":
            why = "of no use with view=latest, the newest record of each key in the whole topic"
            ranges = (*RANGE, *STREAM_READ)
            self._refuse(ranges, f"{why}; use versionAsOf or timestampAsOf to see an older state")
        elif self.view != "records":
            why = f"about records, and view={self.view} has none"
            ranges = (*RANGE, *STREAM_READ, "includeHeaders", "keys")
            self._refuse(ranges, f"{why}; filter the DataFrame instead")
        if self.view in ("history", "groups"):
            self._refuse(TIME_TRAVEL, f"of no use with view={self.view}, which has no versions")

    def _refuse(self, names: Iterable[str], why: str) -> None:
        wrong = [name for name in names if name in self.given]
        if wrong:
            verb, them = ("is", "it") if len(wrong) == 1 else ("are", "them")
            hints = [f"; {_ALTERNATIVES[name]}" for name in wrong if name in _ALTERNATIVES]
            listed = ", ".join(wrong)
            raise InvalidRequestError(f"{listed} {verb} {why}: remove {them}{''.join(hints)}")
