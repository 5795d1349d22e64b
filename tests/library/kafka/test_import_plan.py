"""Which settings of Kafka an import copies."""

from __future__ import annotations

from pylogtable.kafka.import_plan import settings_left_out, settings_to_copy


def test_settings_that_mean_the_same_are_copied_unless_they_are_the_default() -> None:
    kafka = {"retention.ms": "5", "segment.bytes": "1073741824", "segment.ms": "7", "none": ""}
    assert settings_to_copy(kafka) == {"retention.ms": "5"}


def test_topic_without_a_policy_keeps_everything_as_in_kafka() -> None:
    """Kafka takes an empty `cleanup.policy`, and removes nothing then, whatever else is set."""
    kafka = {"cleanup.policy": "", "retention.ms": "604800000", "retention.bytes": "10"}
    assert settings_to_copy(kafka) == {"retention.ms": "-1"}  # no limit of bytes is the default


def test_each_setting_that_is_left_out_has_a_reason() -> None:
    chosen = {
        "segment.ms": "1",
        "file.delete.delay.ms": "1",
        "new.in.kafka": "1",
        "retention.ms": "1",
    }
    assert settings_left_out(chosen) == {
        "file.delete.delay.ms": "vacuum deletes files, and its retention says when",
        "new.in.kafka": "there is no such setting here",
        "segment.ms": "a segment is what one commit wrote, and merge joins small ones",
    }
