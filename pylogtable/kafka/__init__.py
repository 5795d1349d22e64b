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
from pylogtable.kafka.typed.redrive import RedriveReport, redrive
from pylogtable.kafka.values.decoder import Decoded, DecodedGroup, Decoder, Failure, decoder
from pylogtable.kafka.values.encoder import Encoder, encoder

__all__ = [
    "Decoded",
    "DecodedGroup",
    "Decoder",
    "Encoder",
    "ExportReport",
    "ExportsReport",
    "Failure",
    "ImportProgress",
    "ImportReport",
    "ImportsReport",
    "RedriveReport",
    "decoder",
    "encoder",
    "export_topic",
    "export_topics",
    "import_topic",
    "import_topics",
    "redrive",
]
