"""Verbs that end in `-- COMMAND...`, where COMMAND may have options of its own."""

from __future__ import annotations

import click


class WithCommand(click.Command):
    """A command whose words after the first `--` are in the parameter `words`."""

    words_usage = "-- COMMAND..."

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split off the words after `--`."""
        at = args.index("--") if "--" in args else len(args)
        words = tuple(args[at + 1 :])
        try:
            rest = super().parse_args(ctx, args[:at])
        except click.UsageError as problem:
            if "extra argument" not in problem.message or at < len(args):
                raise
            how = f"a command comes after --: {ctx.command_path} [RUN] -- COMMAND"
            raise click.UsageError(f"{problem.message}; {how}", ctx) from None
        ctx.params["words"] = words
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Name the command's words in the usage line."""
        return [*super().collect_usage_pieces(ctx), self.words_usage]


class MayHaveCommand(WithCommand):
    """A `WithCommand` that may also have no words."""

    words_usage = "[-- COMMAND...]"
