"""The protocol of a topic: when a feature is in force."""

from __future__ import annotations

import pytest

from pylogtable.format.model import INLINE_BATCHES, Protocol


@pytest.mark.parametrize("readers", [(), (INLINE_BATCHES,)])
@pytest.mark.parametrize("writers", [(), (INLINE_BATCHES,)])
def test_feature_is_in_force_if_both_lists_name_it(
    readers: tuple[str, ...], writers: tuple[str, ...]
) -> None:
    protocol = Protocol(format=1, reader_features=readers, writer_features=writers)
    is_in_force = bool(readers and writers)
    assert protocol.announces(INLINE_BATCHES) == is_in_force
    announced = protocol.with_feature(INLINE_BATCHES)
    assert (announced is None) == is_in_force
    if announced is not None:
        assert announced.reader_features == announced.writer_features == (INLINE_BATCHES,)
