"""Keeps secrets out of reports: texts of errors may have what was sent to a store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pylogtable.engine import DoctorCheck

_SECRET = re.compile(r"key|secret|token|password|credential|signature|sas|connection", re.I)
_CLOUD = re.compile(r"^(AWS|AZURE|GOOGLE|GCP|DATABRICKS)_")
_FEWEST = 6  # a shorter text may stand in the report by chance


class Secrets:
    """The secrets that this process knows: those in options for a store, and in variables of the
    clouds."""

    def __init__(self, options: Mapping[str, Any] | None) -> None:
        found = {*_secrets(options or {}), *_secrets(_cloud_variables())}
        self._found = sorted(found, key=len, reverse=True)

    def hidden_in(self, text: str) -> str:
        """The text without them."""
        for secret in self._found:
            text = text.replace(secret, "***")
        return text

    def hidden(self, check: DoctorCheck) -> DoctorCheck:
        """The check without them."""
        return replace(
            check, detail=self.hidden_in(check.detail), advice=self.hidden_in(check.advice)
        )


def _cloud_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if _CLOUD.match(name)}


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, str) and len(value) >= _FEWEST and _SECRET.search(name):
            yield value
            yield from re.findall(r"(?:Key|Signature|sig)=([^;&]+)", value)
