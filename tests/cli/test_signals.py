"""What SIGTERM and Ctrl-C do, and that `timeout`, which sends SIGTERM twice, does no harm."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from pylogtable import StorageError
from pylogtable.cli.signals import Terminated, ended_by_sigterm, noting_signals


@pytest.fixture(autouse=True)
def third(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The signals that would have ended the program."""
    got: list[int] = []

    def note(number: int, _: Any) -> None:
        got.append(number)

    monkeypatch.setattr("pylogtable.cli.signals.signal.SIG_DFL", note)
    before = signal.signal(signal.SIGTERM, note)
    yield got
    signal.signal(signal.SIGTERM, before)


def test_sigterm_is_noted_and_the_second_passed_over(third: list[int]) -> None:
    with noting_signals() as signals:
        assert not signals.has_come()
        signal.raise_signal(signal.SIGTERM)
        assert signals.has_come()
        signal.raise_signal(signal.SIGTERM)
        assert third == []
        signal.raise_signal(signal.SIGTERM)
        assert third == [signal.SIGTERM]
    with pytest.raises(Terminated):
        signals.raise_again()


def test_second_sigterm_is_passed_over_while_the_program_says_what_it_has_done(
    third: list[int],
) -> None:
    with ended_by_sigterm():
        with noting_signals() as signals:
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert third == []
        signal.raise_signal(signal.SIGTERM)
        assert third == [signal.SIGTERM]
    assert signals.first == signal.SIGTERM


def test_what_is_to_be_done_at_the_first_signal_is_done_once() -> None:
    done: list[int] = []
    with noting_signals(lambda: done.append(1)):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    assert done == [1]


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_ctrl_c_after_another_signal_ends_the_program(first: signal.Signals) -> None:
    def run() -> None:
        with noting_signals():
            signal.raise_signal(first)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run()


def test_sigterm_ends_what_is_cleaned_up_and_the_second_does_not_disturb(third: list[int]) -> None:
    cleaned = False

    def run() -> None:
        nonlocal cleaned
        with ended_by_sigterm():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                signal.raise_signal(signal.SIGTERM)
                cleaned = True
                assert third == []
                signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Terminated):
        run()
    assert cleaned
    assert third == [signal.SIGTERM]


@pytest.mark.parametrize(("error", "seen"), [(AttributeError, Terminated), (StorageError,) * 2])
def test_sigterm_that_becomes_another_error(
    error: type[Exception], seen: type[BaseException]
) -> None:
    """As in the middle of an import statement. What our own code raises is told."""

    def run() -> None:
        with ended_by_sigterm():
            try:
                signal.raise_signal(signal.SIGTERM)
            except Terminated:
                raise error("partially initialized module") from None

    with pytest.raises(seen):
        run()


def test_other_errors_stay() -> None:
    with pytest.raises(AttributeError), ended_by_sigterm():
        raise AttributeError("mine")
