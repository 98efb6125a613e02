"""A fork that was started, or would be, as a person sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smart_fork.cli.output import out, plain, say

if TYPE_CHECKING:
    from smart_fork.forking.started import Forked


def print_forked(forked: Forked, *, dry_run: bool) -> None:
    """One fork, for a person."""
    from smart_fork.agents.facets import title_of

    for warning in forked.warnings:
        say(f"note: {warning}")
    if dry_run:
        out.print(plain(forked.command))
        return
    out.print(plain(f"Forked {forked.resume_session_id} as {forked.new_session_id or '(id not known yet)'}"))
    out.print(
        plain(
            f"  {title_of(forked.agent_type)}, worker {forked.worker_id} in "
            f"{forked.terminal_id or 'a process'}, directory {forked.cwd}"
        )
    )
    if forked.attach:
        out.print(plain(f"  watch it: {forked.attach}"))
    if forked.log:
        out.print(plain(f"  its output: {forked.log}"))
