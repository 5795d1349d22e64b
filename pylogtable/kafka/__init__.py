"""Topics of Kafka under the same partitions and offsets. Needs the extra `kafka`.

>>> import pylogtable.kafka
>>> pylogtable.kafka.import_topic(store, "orders", bootstrap_servers="broker:9092")
>>> pylogtable.kafka.import_topics(store, all_topics=True, bootstrap_servers="broker:9092")
>>> pylogtable.kafka.export_topic(topic, bootstrap_servers="broker:9092")
"""

from __future__ import annotations

from pylogtable.kafka.export import ExportReport, export_topic
from pylogtable.kafka.export_many import ExportsReport, export_topics
from pylogtable.kafka.import_many import ImportsReport, import_topics
from pylogtable.kafka.import_report import ImportProgress, ImportReport
from pylogtable.kafka.import_start import import_topic

__all__ = [
    "ExportReport",
    "ExportsReport",
    "ImportProgress",
    "ImportReport",
    "ImportsReport",
    "export_topic",
    "export_topics",
    "import_topic",
    "import_topics",
]
