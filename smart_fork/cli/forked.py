"""A fork that was started, or would be, as a person sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smart_fork.cli.output import out, plain, say

if TYPE_CHECKING:
    from smart_fork.budget.selection import Selection
    from smart_fork.forking.started import Forked


def print_forked(forked: Forked, *, dry_run: bool) -> None:
    """One fork, for a person."""
    from smart_fork.agents.facets import title_of

    for warning in forked.warnings:
        say(f"note: {warning}")
    if forked.selection is not None:
        for one in (forked.selection, *forked.merged):
            print_selection(one, in_full=dry_run)
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


def print_selection(selection: Selection, *, in_full: bool) -> None:
    """What a fork within a budget has: in figures, and where nothing is started yet, exchange by exchange."""
    parts = f"{selection.kept} of {selection.kept + selection.left_out} exchanges"
    share = f"about {selection.tokens:,} of {selection.whole_tokens:,} tokens"
    say(f"note: Of {selection.session_id} it has {parts}, {share}")
    for one in selection.exchanges if in_full else ():
        mark = {"whole": "+", "part": "~", "words": "~", "nothing": " "}[one.kept]
        tokens = f"{one.kept_tokens:,} of {one.tokens:,}" if one.kept_tokens else f"{one.tokens:,}"
        why = f"  ({one.why})" if one.why else ""
        say(f"  {mark} {one.number:>3}  {tokens:>20}  {one.title}{why}")
