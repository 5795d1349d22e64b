"""Proves that a store keeps what topics promise: clients in many processes, faults, and a checker
of all that they asked and were told.

>>> from pylogtable.prove import ProveOptions, prove
>>> print(prove("s3://bucket/logs", ProveOptions(minutes=1)))
"""

from pylogtable.prove.page import page_of
from pylogtable.prove.report import OperationRow, ProveReport
from pylogtable.prove.run import FAULTS, ProveOptions, prove

__all__ = ["FAULTS", "OperationRow", "ProveOptions", "ProveReport", "page_of", "prove"]
