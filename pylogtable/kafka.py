"""Topics of Kafka under the same partitions and offsets. Needs the extra `kafka`.

>>> import pylogtable.kafka
>>> pylogtable.kafka.import_topic(store, "orders", bootstrap_servers="broker:9092")
"""

from __future__ import annotations

from pylogtable.bridge.kafka_import import ImportProgress, ImportReport, import_topic

__all__ = ["ImportProgress", "ImportReport", "import_topic"]
