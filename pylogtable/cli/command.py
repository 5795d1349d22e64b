"""Commands and command groups: shared options, examples in the help, and did-you-mean."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from pylogtable.cli import spelling
from pylogtable.cli.options import refuse_repeated_options, shared_options
from pylogtable.cli.session import Session

_pass_session = click.make_pass_decorator(Session, ensure=True)


class _WithExamples(click.Command):
    """Adds the shared options, and examples at the end of the help. `destroys` means that the
    command can remove records, positions, tables or files for good: people type what is suggested
    to them, so it is never suggested."""

    def __init__(
        self,
        name: str | None = None,
        examples: str = "",
        params: list[click.Parameter] | None = None,
        destroys: bool = False,
        **attributes: Any,
    ) -> None:
        given = [] if params is None else params
        super().__init__(name, params=[*given, *shared_options()], **attributes)
        self.destroys = destroys
        self.examples = [line.strip() for line in examples.strip().splitlines()]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an option that is given twice, if it takes one value. An option that does not
        exist may be one of Kafka's tools."""
        try:
            if not ctx.resilient_parsing:
                refuse_repeated_options(self, ctx, args)
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise spelling.unknown_option(self, ctx, args, error.option_name) from None

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


class Command(_WithExamples):
    """One command, such as `consume`. Its function gets the session first."""

    def __init__(self, name: str | None = None, *, callback: Any, **attributes: Any) -> None:
        super().__init__(name, callback=_pass_session(callback), **attributes)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments, also with the flags that Kafka users type."""
        return super().parse_args(ctx, spelling.our_words(self, ctx, args))


class CommandGroup(_WithExamples, click.Group):
    """Commands under one name, such as `topics`. Those in `lazy` are imported when they are used,
    so that the program starts fast."""

    command_class = Command

    def __init__(
        self, name: str | None = None, lazy: Mapping[str, str] | None = None, **attributes: Any
    ) -> None:
        attributes.setdefault("no_args_is_help", False)
        super().__init__(name, **attributes)
        self._lazy = {} if lazy is None else dict(lazy)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without a command, raise a usage error that lists the commands."""
        if not args and not ctx.resilient_parsing:
            raise click.UsageError(
                f"a command is missing: {', '.join(self.list_commands(ctx))}", ctx
            )
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of the help."""
        return [*self._lazy, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, imported now if it is lazy."""
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._lazy[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """If there is no such command, name the one that Kafka users mean, or a similar one."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            raise spelling.unknown_command(self, ctx, args)
        return super().resolve_command(ctx, args)
