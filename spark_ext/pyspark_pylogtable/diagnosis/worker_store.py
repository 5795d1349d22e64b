"""What a task finds out about the store. Unlike `facts`, it needs this package on the worker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pylogtable
from pylogtable.engine import DoctorCheck, diagnose_from_elsewhere
from pyspark_pylogtable.diagnosis.secrets import Secrets


def examine(url: str, options: Mapping[str, Any], folder: str | None) -> str:
    """The checks of this process as JSON, and whether it won the race of all tasks. Without the
    folder of a probe, because the driver could leave none, it is the whole diagnosis."""
    if folder is None:
        checks, won = pylogtable.diagnose(url, storage_options=options).checks, False
    else:
        checks, won = diagnose_from_elsewhere(url, folder, storage_options=options)
    secrets = Secrets(options)
    return json.dumps({"checks": [asdict(secrets.hidden(check)) for check in checks], "won": won})


def parse(text: str) -> tuple[list[DoctorCheck], bool]:
    """The result of `examine`."""
    found = json.loads(text)
    return [DoctorCheck(**check) for check in found["checks"]], found["won"]
