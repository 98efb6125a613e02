"""``doctor``."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from smart_fork.cli.output import out, plain, printed_as_json, say
from smart_fork.cli.progress import progress_bar, working
from smart_fork.cli.setup import plan
from smart_fork.doctor import Check, Checked, run_checks
from smart_fork.finding.team_search import is_known


def doctor(
    deep: Annotated[bool, "Compare the index with a sample of the logs. Slow."] = False,
    seed: Annotated[int | None, "Seed of the sample, to repeat a run."] = None,
) -> None:
    """Check every part by using it, and say the next step for each failure."""
    with working("checking each part"):
        checks = run_checks() + Check.run("set-up", plan.checks)
        if is_known():
            from smart_fork.team import failed_jobs

            checks += Check.run("team", failed_jobs.checks)
    if deep:
        from smart_fork.cli.examination import examine

        seed = secrets.randbelow(1_000_000) if seed is None else seed
        with progress_bar() as progress:
            checks += examine(seed, progress=progress)
    found = Checked.of(checks, seed if deep else None)
    if not printed_as_json(found):
        _print(checks)
        if deep:
            say(f"The sample was chosen by --seed {seed}.")
    if not found.ok:
        raise typer.Exit(1)


def _print(checks: Sequence[Check]) -> None:
    """One line a part, and what to do about those that fail."""
    for check in checks:
        mark, style = ("ok", "green") if check.ok else ("--", "yellow") if check.optional else ("NO", "bold red")
        out.print(Text(f"{mark}  ", style=style), plain(f"{check.name:<16} {check.detail}"), sep="")
        if check.next_step:
            out.print(plain(f"      {check.next_step}"))
