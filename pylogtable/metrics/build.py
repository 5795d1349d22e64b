"""Which version of the library this is, as a sample."""

from __future__ import annotations

import pylogtable
from pylogtable.metrics.catalog import BUILD_INFO
from pylogtable.metrics.sample import Sample


def build_sample(store: str, command: str) -> Sample:
    """The sample of a process that runs this command for a store."""
    return Sample(BUILD_INFO, (store, pylogtable.__version__, command), 1)
