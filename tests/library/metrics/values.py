"""Reads the text of metrics as Prometheus would."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

Key = tuple[str, ...]


class Values:
    """The values in a text, by name and labels. `families` has the type and help of each metric."""

    def __init__(self, text: str) -> None:
        parse = openmetrics if text.endswith("# EOF\n") else prometheus
        self.families = {family.name: family for family in parse(text)}
        self._values = {
            (sample.name.removeprefix("pylogtable_"), frozenset(sample.labels.items())): sample
            for family in self.families.values()
            for sample in family.samples
        }

    def of(self, name: str, **labels: str) -> float | None:
        """The value of the sample with these labels, beside those of others; None if there is none,
        and an error if several have them."""
        found = [
            sample.value
            for (known, pairs), sample in self._values.items()
            if known == name and labels.items() <= dict(pairs).items()
        ]
        assert len(found) <= 1, f"{name} with {labels} has {len(found)} values"
        return found[0] if found else None

    def each(self, names: Iterable[str], **labels: str) -> dict[str, float | None]:
        """The values of several metrics."""
        return {name: self.of(name, **labels) for name in names}

    def topics(self) -> set[str]:
        """The topics that any sample names."""
        return {dict(labels)["topic"] for _, labels in self._values if "topic" in dict(labels)}
