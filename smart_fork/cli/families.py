"""``branch`` and ``lineage``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smart_fork.agents import AGENTS
from smart_fork.agents.options import Options, takes
from smart_fork.cli.options import HandedOption, SessionArgument
from smart_fork.cli.output import Plain, cut_to, one_line, out, plain, printed_as_json, say, say_notes
from smart_fork.cli.progress import library_shown, starting
from smart_fork.errors import Usage
from smart_fork.forking.request import BranchRequest, BudgetOptions
from smart_fork.snippets import ago, tokens_about

if TYPE_CHECKING:
    from rich.tree import Tree

    from smart_fork.forking.results import Branched, Relative

#: Columns where nobody looks: lines are as long as they are.
WIDE = 10_000
#: Commits that are named one by one.
COMMITS = 3


@takes(
    session=SessionArgument,
    without=("worktree", "worktree_name", "with_changes", "name", "skip_permissions", "brief"),
    prompt=Annotated[str | None, typer.Argument(help="Prompt, with --start.")],
    at="Copy up to this message, or `match`: up to the best answer.",
    intent="Text for --at match and --budget.",
    place="Place to run, with --start.",
    as_agent=HandedOption,
    budget="Copy only relevant exchanges, up to N tokens: 30k.",
    order="session prompt at intent also title without start place cwd project budget keep drop as_agent unmasked",
)
def branch(
    *,
    asked: BranchRequest,
    options: Options,
    without: Annotated[
        str | None,
        typer.Option("--excise", help="Turns to drop, numbered as in `excise list`: 5-7,9."),
    ] = None,
    budget: BudgetOptions,
) -> None:
    """Copy a session under a title of its own, to go on with later; the original stays untouched."""
    from smart_fork.forking.branch import branch as branch_session

    caller = AGENTS.caller_session(os.environ)
    asked = replace(asked, options=options, budget=budget.wanted(), caller_session_id=caller)
    if not asked.start and (options.prompt or options.place):
        raise Usage("A prompt and --in are only for --start", "Give --start to resume the branch immediately.")
    if (asked.intent is None) if asked.at_match else (asked.intent is not None and asked.budget is None):
        raise Usage("--at match and --intent belong together", 'Give the intent: --at match --intent "…"')
    if asked.also and asked.intent is None:
        raise Usage("--also goes with --intent", "--also is the intent in other words.")
    if without is not None:
        if asked.start or asked.title or asked.at or asked.project or asked.budget or asked.as_agent:
            raise Usage("--excise goes with --cwd alone", "`smart-fork resume` starts what it writes.")
        from smart_fork.cli.excise import branch_without

        branch_without(asked.session, without, cwd=Path(asked.cwd) if asked.cwd else None)
        return
    with starting(options.place, quiet=not asked.start):
        branched = branch_session(asked, library_shown)
    if not printed_as_json(branched):
        _print_branch(branched, named=bool(asked.title and asked.title.strip()))


def _print_branch(branched: Branched, *, named: bool) -> None:
    say_notes(branched.warnings)
    if branched.selection is not None:
        from smart_fork.cli.fork import print_selection

        print_selection(branched.selection, in_full=False)
    if named:
        out.print(plain(f'Branched conversation "{branched.title}".'))
    else:
        out.print(plain("Branched conversation."))
        out.print(plain(f"  its title: {branched.title}"))
    started = branched.started
    if started is None:
        out.print(plain(f"To resume the branch: {branched.resume_command}"))
    else:
        say_notes(started.warnings)
        out.print(plain(f"  worker {started.worker_id} in {started.terminal_id or 'a process'}"))
        if started.attach:
            out.print(plain(f"  watch it: {started.attach}"))
    out.print(plain(f"To resume the original: {branched.resume_original}"))


def lineage(session: SessionArgument) -> None:
    """Show a session's family as a tree: who was forked from whom and where, what runs, and how to get back."""
    from smart_fork.cli.short_ids import short
    from smart_fork.forking.lineage import lineage as family_of

    family = family_of(session)
    if printed_as_json(family):
        return
    if not out.is_terminal:
        out.console.width = WIDE
    for tree in _trees(family.sessions, family.session_id):
        out.print(tree, soft_wrap=False)
    if family.left_out:
        say(family.left_out)
    if len(family.sessions) == 1:
        out.line(f'No forks yet: smart-fork fork {short(family.session_id)} "PROMPT"')
    if family.return_command:
        out.print(plain(f"To return to its parent: {family.return_command}"))


def _trees(members: Sequence[Relative], asked: str) -> list[Tree]:
    from rich.tree import Tree

    mixed = len({one.agent_type for one in members}) > 1
    roots: list[Tree] = []
    path: list[Tree] = []  # from the root down to the one before
    for one in members:
        del path[one.depth :]
        label = _label(one, marked=one.session_id == asked, whose=AGENTS.title_of(one.agent_type) if mixed else "")
        if path:
            path.append(path[-1].add(label))
        else:
            path.append(Tree(label))
            roots.append(path[0])
    return roots


def _label(one: Relative, *, marked: bool, whose: str = "") -> Plain:
    """Two lines: what it is, and where it is from; a third for what runs. `whose` is its agent, where that is said."""
    from rich.cells import cell_len

    from smart_fork.cli.short_ids import short

    head = plain(short(one.session_id), "bold" if marked else "")
    if one.log_gone and not one.running:
        return head + plain("  its log is gone")
    # What is beside it: the lines of the tree, and the id.
    room = out.console.width - 4 * one.depth - cell_len(str(head)) - 2
    head += plain(f"  {cut_to(one.title, room)}", "bold" if marked else "")
    facts = [ago(one.last_activity), f"{one.turns} messages", f"{tokens_about(one.token_estimate)} tokens"]
    if whose:
        facts.insert(0, whose)
    if one.copies:
        facts.append(f"{len(one.copies) + 1} copies of its log")
    if one.started_by:
        facts.append(f"started by {short(one.started_by)}")
    lines = [" · ".join(filter(None, facts))]
    if at := one.left_parent_at:
        after = f"forked after message {at.message}: "
        lines.append(f'{after}"{cut_to(at.text, room - len(after))}"')
    if one.merged_from:
        lines.append(f"merged with {', '.join(map(short, one.merged_from))} knew")
    if made := one.commits:
        named = ", ".join(commit.commit[:8] for commit in made.commits[:COMMITS])
        more = f" and {left} more" if (left := made.count - COMMITS) > 0 else ""
        told = f"commits: {named}{more}; lines of these in HEAD now: {made.lines_today}" if made.count else ""
        lines.append("; ".join(filter(None, (told, made.notice))))
    if running := one.running:
        lines.append(f"{running.status}: worker {running.worker_id}  {one_line(running.attach)}")
    return head + plain("".join(f"\n{line}" for line in lines), "dim")
