"""The program: its commands, and how a run ends.

Only the answer goes to standard output, so that JSON output stays valid if something fails.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import pairwise

import click

import pylogtable
from pylogtable import LogTableError, StorageError
from pylogtable.cli.command import CommandGroup
from pylogtable.cli.messages import library_messages, report_error, show_traceback
from pylogtable.cli.session import (
    BROKEN_PIPE,
    FAILED,
    INTERRUPTED,
    TERMINATED,
    WRONG_USAGE,
    Session,
)
from pylogtable.cli.signals import Terminated, ended_by_sigterm
from pylogtable.cli.streams import discard, fill_closed_streams, safe_terminals

PROGRAM = "pylogtable"
COMPLETE_VARIABLE = "_PYLOGTABLE_COMPLETE"

_COMMANDS = {
    "topics": "topics:topics",
    "offsets": "offsets:offsets",
    "produce": "produce:produce",
    "consume": "consume:consume",
    "tail": "tail:tail",
    "groups": "groups:groups",
    "segments": "inspect:segments",
    "history": "inspect:history",
    "verify": "check:verify",
    "merge": "maintain:merge",
    "compact": "maintain:compact",
    "retain": "maintain:retain",
    "vacuum": "maintain:vacuum",
    "maintain": "maintain:maintain",
    "run": "run:run",
    "publish": "publish:publish",
    "unpublish": "publish:unpublish",
    "delete-records": "delete_records:delete_records",
    "erase": "erase:erase",
    "mirror": "mirror:mirror",
    "compare": "check:compare",
    "kafka": "kafka:kafka",
    "doctor": "check:doctor",
    "prove": "prove:prove",
    "report": "inspect:report",
    "metrics": "metrics:metrics",
}


@click.group(
    cls=CommandGroup,
    lazy={name: f"pylogtable.cli.{place}" for name, place in _COMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    examples="""
        pylogtable topics create orders --partitions 6 --store ./logs
        export PYLOGTABLE_STORE=s3://bucket/logs
        echo 'u1:hello' | pylogtable produce orders --key-separator :
        pylogtable consume orders --from earliest --format '%p %o %k %s\\n'
    """,
)
@click.version_option(pylogtable.__version__, prog_name=PROGRAM)
def app() -> None:
    """Topics without a broker: Kafka's data model on object storage.

    TOPIC is the name of a topic in the store given by --store or PYLOGTABLE_STORE. With a slash in
    it, TOPIC is the topic's own path or URL, such as ./logs/orders.

    Flags of Kafka's tools and of kcat work where they mean the same.
    """


@app.command(
    short_help="Print a completion script for a shell.",
    examples="""
        eval "$(pylogtable completion bash)"
        pylogtable completion fish > ~/.config/fish/completions/pylogtable.fish
    """,
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(_: Session, shell: str) -> None:
    """Print the completion script for SHELL.

    It completes commands, options, and the topics and groups in the store of PYLOGTABLE_STORE.
    """
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None
    print(script(app, {}, PROGRAM, COMPLETE_VARIABLE).source())


def main(arguments: Sequence[str] | None = None, session: Session | None = None) -> int:
    """Run the program and return its exit status."""
    fill_closed_streams()
    session = session or Session()
    if sys.stdout is None:
        # Refuse before doing anything: a user would repeat a command that failed at its end.
        report_error(
            session, "ClosedOutput", "standard output is closed; use > /dev/null to discard it"
        )
        return FAILED
    with safe_terminals(), library_messages(session):
        return _run_and_flush(session, arguments)


def _run_and_flush(session: Session, arguments: Sequence[str] | None) -> int:
    status = _run(session, arguments)
    try:
        sys.stdout.flush()
    except OSError as error:
        discard(sys.stdout)
        if isinstance(error, BrokenPipeError):
            return BROKEN_PIPE
        if status == 0:
            report_error(session, type(error).__name__, f"cannot write the output: {error}")
    return status or int(session.has_failed)


def _run(session: Session, arguments: Sequence[str] | None) -> int:
    instruction = os.environ.get(COMPLETE_VARIABLE)
    given = list(sys.argv[1:] if arguments is None else arguments)
    if ("--log-format", "json") in pairwise(given) or "--log-format=json" in given:
        session.log_format = "json"  # a usage error comes before options are read
    try:
        if arguments is None and instruction:
            from click.shell_completion import shell_complete

            return shell_complete(app, {}, PROGRAM, COMPLETE_VARIABLE, instruction)
        with (
            ended_by_sigterm(),
            app.make_context(PROGRAM, given, obj=session) as context,
        ):
            return int(app.invoke(context) or 0)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.UsageError as error:
        report_error(session, "UsageError", _usage_message(error))
        return WRONG_USAGE
    except Terminated:
        return TERMINATED
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        discard(sys.stdout)
        return BROKEN_PIPE
    except (LogTableError, OSError, click.ClickException) as error:
        show_traceback(session)
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        report_error(session, type(error).__name__, message)
        return session.status_if_store_fails if isinstance(error, StorageError) else FAILED


def _usage_message(error: click.UsageError) -> str:
    """What is wrong, and the usage line of the command."""
    message = error.format_message().rstrip(".")
    if error.ctx is None:
        return message
    usage = " ".join(error.ctx.command.collect_usage_pieces(error.ctx))
    return f"{message} (usage: {error.ctx.command_path} {usage})"
