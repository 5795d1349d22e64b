"""An option that takes one value and gets two is refused: one of them would be ignored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import pylogtable
from pylogtable.cli.app import app
from tests.cli.conftest import Run


def single_options(
    group: click.Group = app, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every option with one value: the command that has it, and its name."""
    context = click.Context(group)
    for param in group.params:
        yield from named(path, param)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from single_options(command, (*path, name))
        else:
            for param in command.params:
                yield from named((*path, name), param)


def named(path: tuple[str, ...], param: click.Parameter) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(param, click.Option) and not (param.is_flag or param.multiple):
        yield path, max(param.opts, key=len)


def test_every_option_with_one_value_refuses_two(run: Run) -> None:
    seen = list(single_options())
    assert len(seen) > 100
    for path, option in seen:
        told = run(*path, option, "1", option, "2")
        told.failed(f"{option} takes one value, and 2 are given", "Give one of them", status=2)


def test_same_value_twice_is_one_value(run: Run, clicks: pylogtable.Topic) -> None:
    shown = run("offsets", "clicks", "--output", "json", "--output", "json")
    assert shown.status == 0
    assert run("offsets", "clicks", "--time", "earliest", "--time", "latest").status == 2


def test_shared_option_before_and_after_the_command_has_one_value(
    run: Run, clicks: pylogtable.Topic, store_dir: Path
) -> None:
    """Which store would lose its topic?"""
    told = run("--store", store_dir, "topics", "delete", "clicks", "--store", "./other", "--yes")
    told.failed("--store takes one value", str(store_dir), "./other", status=2)
    assert pylogtable.open(store_dir).topics() == ["clicks"]
    assert run("--store", store_dir, "topics", "list", "--store", store_dir).out == "clicks\n"


def test_secrets_are_not_shown(run: Run) -> None:
    secrets = ['{"secret": "hush1"}', '{"secret": "hush2"}']
    for words in (
        ("topics", "list", "--storage-options", secrets[0], "--storage-options", secrets[1]),
        ("--storage-options", secrets[0], "topics", "list", "--storage-options", secrets[1]),
    ):
        told = run(*words)
        told.failed("--storage-options takes one value", status=2)
        assert "hush" not in told.err
    told = run(
        *("kafka", "import", "--bootstrap-servers", "b:1", "--topic", "t"),
        *("--consumer-property", "sasl.password=hush1"),
        *("--consumer-property", "sasl.password=hush2"),
    )
    told.failed("'sasl.password' is given twice", status=2)
    assert "hush" not in told.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("topics", "alter", "clicks", "-c", "retention.ms=1", "-c", "retention.ms=-1"),
            "'retention.ms' is given twice",
        ),
        (
            ("topics", "create", "t", "--column", "a:int", "--column", "a:long", "--key", "a"),
            "column 'a' is given twice",
        ),
        (
            ("topics", "alter", "clicks", "--widen-column", "a:int", "--widen-column", "a:long"),
            "column 'a' is given twice",
        ),
        (("consume", "clicks", "--from", "0:1,0:2"), "names a partition twice"),
        (("consume", "clicks", "--to", "0:1,1:1,0:2"), "names a partition twice"),
    ],
    ids=["setting", "column", "wider column", "from", "to"],
)
def test_name_with_two_values_is_refused(
    run: Run, clicks: pylogtable.Topic, words: tuple[str, ...], message: str
) -> None:
    before = clicks.at().version
    run(*words).failed(message, status=2)
    assert clicks.at().version == before


def test_topic_named_twice_is_deleted_once(run: Run, clicks: pylogtable.Topic) -> None:
    assert run("topics", "delete", "clicks", "clicks", "--yes").status == 0
