"""The options of `pylogtable kafka` about values that become columns, and the command `redrive`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pylogtable.cli.command import Command
from pylogtable.cli.messages import warn
from pylogtable.cli.options import many, topic_argument
from pylogtable.cli.output import answer
from pylogtable.cli.parse import parse_settings
from pylogtable.cli.session import Session
from pylogtable.cli.signals import noting_signals
from pylogtable.presentation import count_text

if TYPE_CHECKING:
    from pylogtable.kafka import ImportReport

Function = TypeVar("Function", bound=Callable[..., Any])
#: Reasons that are shown; JSON has all.
MOST_REASONS = 10
FORMATS = click.Choice(["avro", "json-schema", "protobuf", "json"])

_SCHEMA_OPTIONS: list[Callable[[Any], Any]] = [
    click.option("--schema-registry", metavar="URL", help="The registry that has the schemas."),
    click.option("--value-schema", metavar="FILE", help="The one schema of all values."),
    click.option("--key-schema", metavar="FILE", help="The one schema of all keys."),
    many(
        "--registry-property",
        "registry_settings",
        metavar="NAME=VALUE",
        help="A setting of the registry's client, such as basic.auth.user.info=NAME:PASSWORD.",
    ),
]


def _with(options: list[Callable[[Any], Any]]) -> Callable[[Function], Function]:
    def decorate(command: Function) -> Function:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


schema_options = _with(_SCHEMA_OPTIONS)
#: Options of `consume`, which prints values as JSON.
decode_options = _with(
    [
        click.option("--value-format", type=FORMATS, help="Decode values, and print JSON."),
        click.option("--key-format", type=FORMATS, help="Decode keys, and print JSON."),
        *_SCHEMA_OPTIONS,
    ]
)
#: Options of an export whose columns become values.
encode_options = _with(
    [
        click.option(
            "--value-format", type=FORMATS, help="Encode columns: they become fields of values."
        ),
        click.option(
            "--key-format", type=FORMATS, help="Encode key columns: they become fields of keys."
        ),
        *_SCHEMA_OPTIONS,
    ]
)
#: Options of an import whose values become columns.
value_options = _with(
    [
        click.option(
            "--value-format", type=FORMATS, help="Decode values: their fields become columns."
        ),
        click.option(
            "--key-format", type=FORMATS, help="Decode keys too: their fields become key columns."
        ),
        *_SCHEMA_OPTIONS,
        click.option("--keep-raw", is_flag=True, help="Also keep Kafka's bytes, in raw_value."),
        click.option(
            "--on-error",
            type=click.Choice(["dead-letter", "fail"]),
            default="dead-letter",
            show_default=True,
            help="What becomes of records that cannot be decoded.",
        ),
    ]
)


def parse_value_options(given: dict[str, Any]) -> None:
    """Put the settings of the registry into the form that the library takes."""
    settings = parse_settings(given.pop("registry_settings"), "--registry-property")
    given["registry_settings"] = settings


def warn_of_dead_letters(session: Session, report: ImportReport) -> None:
    """Tell where the records are that could not be decoded."""
    if report.dead_letters:
        count = count_text(report.dead_letters, "record")
        warn(
            session,
            f"{count} could not be decoded: see topic {report.topic}-dead-letters; when the reason "
            f"is gone: pylogtable kafka redrive {report.topic}",
            dead_letters=report.dead_letters,
            topic=report.topic,
        )


@click.command(
    "redrive",
    cls=Command,
    short_help="Try dead letters of an import again.",
    examples="""
        pylogtable kafka redrive orders --schema-registry http://registry:8081 --dry-run
        pylogtable kafka redrive orders --schema-registry http://registry:8081
    """,
)
@topic_argument
@click.option("--value-format", type=FORMATS, help="Another format than that of the import.")
@click.option("--key-format", type=FORMATS, help="Another format than that of the import.")
@schema_options
@click.option("--dry-run", is_flag=True, help="Only say how many decode now.")
def redrive(session: Session, /, topic: str, **given: Any) -> None:
    """Decode the dead letters of TOPIC again, with the schemas of now.

    What decodes goes to TOPIC-redriven as long as TOPIC is Kafka's copy, and to TOPIC itself after
    its promotion. The rest stays in TOPIC-dead-letters.
    """
    from pylogtable.kafka import redrive as run

    parse_value_options(given)
    with noting_signals() as signals:
        report = run(session.open_store(), topic, stop=signals.has_come, **given)
    done = f"{count_text(report.redriven, 'dead letter')} {'decode' if report.dry_run else 'sent'}"
    lines = [f"{report.topic}: {done}; {report.dead:,} still dead"]
    lines += [f"{count:,}: {why}" for why, count in list(report.reasons.items())[:MOST_REASONS]]
    if len(report.reasons) > MOST_REASONS:
        lines.append(f"and {len(report.reasons) - MOST_REASONS:,} more reasons")
    answer(session, report, "\n".join(lines))
    signals.raise_again()
