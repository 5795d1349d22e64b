"""The program: its commands, and how it ends.

The exit status is 0 if all went well, 1 if something failed, 2 if the command makes no sense, 130
after Ctrl-C, 141 if whoever read the output went away. What failed is told in one line on standard
error, so that JSON on standard output stays JSON whatever happens.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import click

import pylogtable
from pylogtable import LogTableError
from pylogtable.cli.command import Group
from pylogtable.cli.output import complain
from pylogtable.cli.session import Session

PROGRAM = "pylogtable"
COMPLETE_VARIABLE = "_PYLOGTABLE_COMPLETE"
INTERRUPTED, CLOSED_PIPE = 130, 141

_COMMANDS = {
    "topics": "topics:topics",
    "offsets": "offsets:offsets",
    "produce": "produce:produce",
    "consume": "consume:consume",
    "groups": "groups:groups",
    "segments": "inspect:segments",
    "history": "inspect:history",
    "verify": "inspect:verify",
    "merge": "maintain:merge",
    "compact": "maintain:compact",
    "retain": "maintain:retain",
    "vacuum": "maintain:vacuum",
    "maintain": "maintain:maintain",
    "delete-records": "delete_records:delete_records",
    "doctor": "doctor:doctor",
    "report": "report:report",
    "completion": "completion:completion",
}


@click.group(
    cls=Group,
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

    TOPIC is a topic's name in the store that --store or PYLOGTABLE_STORE names, or, with a slash in
    it, a topic's own path or URL, such as ./logs/orders.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit status, but raises SystemExit for wrong usage."""
    instruction = os.environ.get(COMPLETE_VARIABLE)
    if arguments is None and instruction:
        from click.shell_completion import shell_complete

        return shell_complete(app, {}, PROGRAM, COMPLETE_VARIABLE, instruction)
    given = list(sys.argv[1:] if arguments is None else arguments)
    session = Session()
    try:
        with app.make_context(PROGRAM, given, obj=session) as context:
            status = app.invoke(context)
        sys.stdout.flush()
        return int(status or 0)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.UsageError as error:
        complain(session, "UsageError", _usage(error))
        sys.exit(2)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        _leave_stdout()
        return CLOSED_PIPE
    except (LogTableError, OSError, click.ClickException) as error:
        if session.verbose:
            traceback.print_exc()
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        complain(session, type(error).__name__, message)
        return 1


def _usage(error: click.UsageError) -> str:
    """What is wrong, and how it is said right, in one line."""
    message = error.format_message().rstrip(".")
    if error.ctx is None:
        return message
    usage = " ".join(error.ctx.command.collect_usage_pieces(error.ctx))
    return f"{message} (usage: {error.ctx.command_path} {usage})"


def _leave_stdout() -> None:
    """So that Python does not fail once more when it flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
