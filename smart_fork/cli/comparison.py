"""``compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from indexer.masking import beginning
from smart_fork.cli.output import out, plain, print_json, say, wants_json
from smart_fork.system.processes import Processes
from smart_fork.workers.comparison import compare as compared
from smart_fork.workers.comparison import counted, facts
from smart_fork.workers.state import Compared

#: What a column of the table shows; all of it is in the page and in the JSON.
ANSWER_CHARACTERS, MOST_FILES = 1_500, 15


def compare(
    workers: Annotated[list[str] | None, typer.Argument(help="Workers. Default: the last fan-out.")] = None,
    diff: Annotated[bool, "Print each diff."] = False,
    html: Annotated[Path | None, "Write answers and diffs to this HTML file."] = None,
) -> None:
    """What workers have made of the same prompt, side by side: answers, changes, tokens and time."""
    found = compared(list(workers or ()), Processes(), patch=diff or html is not None)
    if html is not None:
        from smart_fork.page.export import write_comparison

        write_comparison(found, html)
        say(f"Written: {html}")
    if wants_json():
        keys = set() if diff else {"diff"}
        print_json({"workers": [{k: v for k, v in one.as_json().items() if k not in keys} for one in found]})
    elif html is None:
        _print(found, diff=diff)


def _print(found: list[Compared], *, diff: bool) -> None:
    from rich.table import Table

    table = Table(show_lines=True, expand=False)
    table.add_column("")
    for one in found:
        table.add_column(plain(one.name), overflow="fold", ratio=1)
    table.add_row("worker", *(plain(f"{one.worker_id} ({one.agent_type})") for one in found))
    for rows in zip(*map(facts, found), strict=True):
        table.add_row(rows[0][0], *(plain(value) for _, value in rows))
    table.add_row("files", *(plain(_files(one)) for one in found))
    table.add_row("answer", *(plain(_answer(one)) for one in found))
    out.print(table, soft_wrap=False)
    for one in found if diff else ():
        out.print(plain(f"\n{one.name}: {one.worktree or 'no worktree of its own'}", "bold"))
        out.print(plain(one.diff or ("Not known." if one.files is None else "No changes.")))


def _files(one: Compared) -> str:

    lines = [f"{file.path} {counted(file)}" for file in one.files or ()]
    return "\n".join(lines[:MOST_FILES] + ([f"… {len(lines) - MOST_FILES} more"] if len(lines) > MOST_FILES else []))


def _answer(one: Compared) -> str:

    text = beginning(one.answer, ANSWER_CHARACTERS)
    return "\n".join([*([text] if text else []), *(f"({note}.)" for note in one.notes)])
