"""``mcp``, ``doctor`` and ``demo``."""

from __future__ import annotations

import gc
import secrets
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from smart_fork.cli.output import printed_as_json, say
from smart_fork.cli.progress import progress_bar, working

if TYPE_CHECKING:
    from smart_fork.doctor import Check


def mcp(
    tools: Annotated[
        Literal["few", "all"],
        typer.Option("--tools", envvar="SMART_FORK_TOOLS", help="Tools that the agent sees: few or all."),
    ] = "few",
    begun: Annotated[str, typer.Option("--begun", hidden=True)] = "",
) -> None:
    """Serve the tools over MCP on stdin and stdout; your agents start this."""
    gc.disable()  # nearly all that is made until it serves are modules, which stay: to look through them takes a tenth
    from indexer.models import configured_embedder
    from smart_fork.server import run_stdio
    from smart_fork.server.stdio import Begun

    gc.freeze()
    gc.enable()
    run_stdio(Begun.of(begun), configured_embedder(background=True), everything=tools == "all")


def doctor(
    deep: Annotated[bool, typer.Option("--deep", help="Compare the index with a sample of the logs. Slow.")] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the sample, to repeat a run.")] = None,
) -> None:
    """Check every part by using it, and say the next step for each failure."""
    from smart_fork.cli.doctor import print_checks
    from smart_fork.doctor import Checked, healthy, run_checks, run_each
    from smart_fork.retrieval.elsewhere import is_known
    from smart_fork.setup import drift

    more: dict[str, Callable[[], Iterator[Check]]] = {"set-up": drift.checks}
    if is_known():
        from smart_fork.team import failed_jobs

        more["team"] = failed_jobs.checks
    with working("checking each part"):
        checks = run_checks() + run_each(more)
    if deep:
        from smart_fork.examination import examine

        seed = secrets.randbelow(1_000_000) if seed is None else seed
        with progress_bar() as progress:
            checks += examine(seed, progress=progress)
    if not printed_as_json(Checked(healthy(checks), tuple(checks), seed if deep else None)):
        print_checks(checks)
        if deep:
            say(f"The sample was chosen by --seed {seed}.")
    if not healthy(checks):
        raise typer.Exit(1)


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary home and print its path.")] = False,
) -> None:
    """Show the main job on a few made-up sessions in a temporary home."""
    from smart_fork.cli.demonstration import run_demo

    run_demo(keep=keep)
