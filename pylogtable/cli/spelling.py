"""What people type: flags of Kafka's tools and of kcat in our words, and hints for what there is
not. What destroys is never suggested by its resemblance."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

import click

from pylogtable.arguments import did_you_mean
from pylogtable.cli.kafka_words import COMMANDS, SERDE
from pylogtable.cli.session import current_session
from pylogtable.cli.translation import (
    Translated,
    command_line,
    mode_of,
    tool_named,
    translate,
    without_mode,
    words_of_tool,
)

#: Options that confirm or force what destroys, and such that say what to destroy.
DESTROYING_OPTIONS = frozenset({"--yes", "--execute", "--force", "--drop-column", "--unset"})
#: How alike two names have to be, without their dashes. `list` and `store` are not.
_ALIKE = 0.7


def our_words(command: click.Command, ctx: click.Context, args: Sequence[str]) -> list[str]:
    """The arguments of a command in our words. Raises for flags that we have no words for."""
    own = _own(command, ctx)
    if ctx.resilient_parsing and args and own.get(args[-1]):
        # Its value is to be completed. With no value the parser would not reach the arguments.
        args = args[:-1]
    done = translate(_path(ctx), _with_stores(args), own)
    if ctx.resilient_parsing or not done.problems:
        return done.args
    raise click.UsageError(_told(done, _line(ctx, _path(ctx), done)))


def _with_stores(args: Sequence[str]) -> list[str]:
    """The arguments, with our word for a store that is there and is called like a serde of kcat."""
    found: list[str] = []
    for arg in args:
        is_value = bool(found) and found[-1] == "-s"
        if is_value and SERDE.fullmatch(arg) and Path(arg).is_dir():
            found[-1] = f"--store={arg}"
        else:
            found.append(arg)
    return found


def unknown_option(
    command: click.Command, ctx: click.Context, args: Sequence[str], option: str
) -> click.UsageError:
    """The error about an option that does not exist."""
    if isinstance(command, click.Group):
        mode = mode_of(_path(ctx), args)
        if mode is not None:
            done = _translated(ctx, mode.command, without_mode(mode, args))
            problem = f"{mode.tool}'s {mode.flag} is `pylogtable {mode.command}` here"
            done.problems.insert(0, problem)
            return click.UsageError(_told(done, _line(ctx, mode.command, done)))
        done = translate(_path(ctx), args, _own(command, ctx))
        if done.problems:
            return click.UsageError(_told(done, None))
    names = {name.lstrip("-"): name for name in _own(command, ctx) if name.startswith("--")}
    alike = difflib.get_close_matches(option.lstrip("-"), names, cutoff=_ALIKE)
    harmless = [names[name] for name in alike if names[name] not in DESTROYING_OPTIONS]
    hint = f"did you mean {harmless[0]!r}?" if harmless else f"see {ctx.command_path} --help"
    return click.UsageError(f"there is no option {option!r}; {hint}", ctx)


def unknown_command(
    group: click.Group, ctx: click.Context, args: Sequence[str]
) -> click.UsageError:
    """The error about a command that does not exist."""
    typed, *rest = args
    said = f"there is no command {typed!r}"
    tool = tool_named(typed) if not _path(ctx) else None
    if tool is not None:
        return click.UsageError(_of_tool(ctx, said, tool, [*words_of_tool(typed), *rest]))
    word = COMMANDS.get(typed) if not _path(ctx) else None
    if word is not None:
        return click.UsageError(f"{said}; did you mean {word!r}?", ctx)

    def is_harmless(name: str) -> bool:
        return not getattr(group.get_command(ctx, name), "destroys", False)

    hint = did_you_mean(typed, group.list_commands(ctx), is_harmless)
    return click.UsageError(f"{said}; {hint}", ctx)


def _of_tool(ctx: click.Context, said: str, tool: str, rest: Sequence[str]) -> str:
    """The message about a program of Kafka's that is a command here."""
    mode = mode_of(tool, rest)
    if mode is not None:
        done, path = _translated(ctx, mode.command, without_mode(mode, rest)), mode.command
    else:
        path = tool or "consume"
        if isinstance(_command_at(ctx, path)[0], click.Group):
            return f"{said}; see pylogtable {path} --help"
        done = _translated(ctx, path, rest)
    done.problems.insert(0, f"{said}: here it is `pylogtable {path}`")
    return _told(done, _line(ctx, path, done))


def _translated(ctx: click.Context, path: str, args: Sequence[str]) -> Translated:
    command, inner = _command_at(ctx, path)
    return translate(path, args, _own(command, inner))


def _told(done: Translated, line: str | None) -> str:
    type_this = f"; type: {line}" if line is not None and done.is_whole else ""
    return "; ".join(done.problems) + type_this


def _line(ctx: click.Context, path: str, done: Translated) -> str:
    """The line as one types it, with the shared options that came before the command."""
    before = [
        f"--{name.replace('_', '-')}={value}"
        for name, value in current_session(ctx).given.items()
        if value is not True
    ]
    return command_line(path, [*done.args, *before])


def _path(ctx: click.Context) -> str:
    """The names of the command without that of the program, such as `topics create`."""
    return ctx.command_path.partition(" ")[2]


def _own(command: click.Command, ctx: click.Context) -> dict[str, bool]:
    """The options of a command, each with whether it takes a value."""
    options = [param for param in command.get_params(ctx) if isinstance(param, click.Option)]
    return {name: not (o.is_flag or o.count) for o in options for name in o.opts}


def _command_at(ctx: click.Context, path: str) -> tuple[click.Command, click.Context]:
    root = ctx.find_root()
    command, inner = root.command, root
    for name in path.split():
        assert isinstance(command, click.Group)
        found = command.get_command(inner, name)
        assert found is not None
        command, inner = found, click.Context(found, info_name=name, parent=inner)
    return command, inner
