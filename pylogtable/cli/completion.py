"""`pylogtable completion`: a script that lets a shell complete commands, options and names."""

from __future__ import annotations

import click

from pylogtable.cli.command import Command


@click.command(
    cls=Command,
    short_help="Print a completion script for a shell.",
    examples="""
        eval "$(pylogtable completion bash)"
        pylogtable completion fish > ~/.config/fish/completions/pylogtable.fish
    """,
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    It completes commands, options, and the topics and groups in the store of PYLOGTABLE_STORE.
    """
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None
    root = context.find_root()
    name = root.info_name or "pylogtable"
    print(script(root.command, {}, name, f"_{name.upper()}_COMPLETE").source())
