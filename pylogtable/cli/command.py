"""Commands and groups of them: the shared options, examples in the help, and did-you-mean."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

import click

from pylogtable.cli.session import shared_options


class Command(click.Command):
    """A command with the shared options, and examples in its help."""

    def __init__(
        self,
        name: str | None = None,
        examples: str = "",
        params: list[click.Parameter] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(name, params=[*(params or []), *shared_options()], **attributes)
        self.examples = [line.strip() for line in examples.strip().splitlines()]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_examples(formatter, self.examples)


class Group(click.Group):
    """Commands below one noun, or all of them; those in `lazy` are imported when asked for."""

    command_class = Command

    def __init__(
        self,
        name: str | None = None,
        examples: str = "",
        lazy: Mapping[str, str] | None = None,
        params: list[click.Parameter] | None = None,
        **attributes: Any,
    ) -> None:
        attributes.setdefault("no_args_is_help", False)
        super().__init__(name, params=[*(params or []), *shared_options()], **attributes)
        self.examples = [line.strip() for line in examples.strip().splitlines()]
        self._lazy = dict(lazy or {})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            raise click.UsageError(f"say what to do: {', '.join(self.list_commands(ctx))}", ctx)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._lazy, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._lazy[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            names = self.list_commands(ctx)
            near = difflib.get_close_matches(args[0], names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(names)}"
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_examples(formatter, self.examples)


def _write_examples(formatter: click.HelpFormatter, examples: list[str]) -> None:
    if examples:
        with formatter.section("Examples"):
            for example in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")
