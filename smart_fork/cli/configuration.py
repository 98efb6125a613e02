"""``config``."""

from __future__ import annotations

from typing import Annotated

import typer

from smart_fork.cli.output import out, plain, printed_as_json

AllOption = Annotated[bool, typer.Option("--all", "-a", help="Also settings that have their default value.")]


def config(every: AllOption = False) -> None:
    """Show every setting, its value and where the value comes from."""
    from smart_fork.settings import settings

    found = settings()
    if printed_as_json(found):
        return
    changed = [one for one in found.settings if every or one.source != "default"]
    for one in changed:
        value = f" = {one.value or 'not set'}"
        out.print(plain(one.name, "bold"), plain(value), plain(f"  ({one.source})", "dim"), sep="")
        out.print(plain(f"    {one.meaning} Change: {one.change}"))
    hidden = len(found.settings) - len(changed)
    if hidden:
        out.print(plain(f"{hidden} settings have their default value. `smart-fork config --all` lists them."))
    out.print(plain(f"Settings file: {found.file}"))
