"""``demo``: the main job on made-up sessions, in a temporary home that is removed afterwards."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

from smart_fork.cli.output import out, plain, printed_as_json, say
from smart_fork.cli.progress import progress_bar


def demo(
    keep: Annotated[bool, "Keep the temporary home and print its path."] = False,
) -> None:
    """Show the main job on a few made-up sessions in a temporary home."""
    from smart_fork.agents import AGENTS
    from smart_fork.cli.demo import write_demo_home
    from smart_fork.cli.found import print_found
    from smart_fork.cli.short_ids import short
    from smart_fork.finding.answer import Found
    from smart_fork.finding.library import library
    from smart_fork.finding.request import FindRequest

    before = dict(os.environ)
    folder = Path(tempfile.mkdtemp(prefix="smart-fork-demo-"))
    try:
        made = write_demo_home(folder)
        os.environ.update(
            HOME=str(made.home),
            SMART_FORK_HOME=str(made.home / ".smart-fork"),
            SMART_FORK_BACKGROUND="0",
            SMART_FORK_INDEXING="true",
            **{home.variable: str(made.home / home.default) for home in AGENTS.homes()},
        )
        say(f"These are {len(made.repositories)} made-up repositories with made-up sessions of coding agents.")
        say(f'Which of them already knows how to "{made.intent}"?')
        say("")
        with progress_bar() as progress, library(str(made.project), progress) as known:
            answer = known.find(FindRequest(made.intent, agent_type="all", limit=3))
        if printed_as_json(answer):
            return
        print_found(answer)
        if not isinstance(answer, Found):
            return
        best = answer.results[0]
        say("The best one would be forked with:")
        out.print(plain(best.fork_command))
        say("or in one step, in a tmux window of its own:")
        out.print(plain(f'smart-fork fork {short(best.session_id)} "{made.intent}"'))
        say("")
        if not keep:
            say("The example sessions are deleted. Try your own, in a repository where an agent has worked:")
            say('  smart-fork find "what you want to do next"')
            say("  smart-fork setup       connects it to your agents")
    finally:
        os.environ.clear()
        os.environ.update(before)
        if keep:
            say(f"Kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
