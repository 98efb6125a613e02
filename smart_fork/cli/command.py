"""A command whose options have values: an empty one is a mistake, such as a variable of a shell that is not set."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from smart_fork.errors import Usage


class Command(TyperCommand):
    """Refuses options with an empty value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click."""
        given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        for one in self.params:
            if one.param_type_name == "option" and given.get(one.name or "") == "":
                raise Usage(f"{one.opts[0]} is empty", "Give it a value, or leave it out.")
        return super().parse_args(ctx, args)
