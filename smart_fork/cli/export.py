"""``export``: a session as a file to read or send."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smart_fork.cli.families import SessionArgument
from smart_fork.cli.output import printed_as_json, say, write
from smart_fork.errors import Usage


def export(
    session: SessionArgument,
    file: Annotated[Path | None, typer.Argument(help="File to write. Without it, print to stdout.")] = None,
    html: Annotated[bool, "Write one HTML page without scripts."] = False,
    markdown: Annotated[bool, "Write Markdown."] = False,
    force: Annotated[bool, "Replace an existing file."] = False,
) -> None:
    """A session as one file to read or send: what was said, what was run, and edits as diffs; secrets are masked."""
    from smart_fork.page.export import exported

    if html == markdown:
        raise Usage("Choose a format: --html or --markdown")
    where = None if file == Path("-") else file
    made = exported(session, "html" if html else "markdown", where, force=force)
    if printed_as_json(made):
        return
    if made.left_out:
        say(made.left_out)
    if made.file is not None:
        say(f"{made.title}: {made.characters:,} characters in {made.file}. Read it before you send it.")
    else:
        write(made.text)
