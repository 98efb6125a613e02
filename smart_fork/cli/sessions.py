"""The commands ``list``, ``show``, ``export`` and ``lineage``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smart_fork.agents import AGENTS
from smart_fork.agents.request_fields import takes
from smart_fork.cli.command_table import command_module
from smart_fork.cli.options import EVERYBODY, EverywhereOption, ProjectOption, SessionArgument, WhoseOption
from smart_fork.cli.output import Plain, cut_to, one_line, out, plain, printed_as_json, say, say_passed_over, write
from smart_fork.cli.result_list import print_deleted_prompts
from smart_fork.cli.session_ids import short
from smart_fork.display_text import ago, minute, tokens_about
from smart_fork.errors import Usage
from smart_fork.finding.request import RecentRequest
from smart_fork.finding.results import place_mark
from smart_fork.finding.team_sessions import conversation_of

if TYPE_CHECKING:
    from rich.tree import Tree

    from smart_fork.forking.results import Relative


#: The most sessions that the team's server lists in one page.
_MAX_SHARED = 100
#: The width of output that is not a terminal: lines are not wrapped.
WIDE = 10_000
#: The most commits of a session that its lines in the tree name one by one.
COMMITS = 3


@takes(order="agent project everywhere limit include_automated tag archived")
def list_sessions(
    *,
    agent: WhoseOption = EVERYBODY,
    project: ProjectOption = None,
    everywhere: EverywhereOption = False,
    asked: RecentRequest,
    team: Annotated[bool, "Only sessions that the team shares."] = False,
) -> None:
    """List recent sessions, straight from the logs: no index is needed. Pinned sessions come first."""
    if team:
        whose = None if agent == EVERYBODY else str(agent)
        if asked.limit > _MAX_SHARED:
            raise Usage(
                f"--limit is at most {_MAX_SHARED} with --team, not {asked.limit}",
                "`smart-fork team list --page` lists more.",
            )
        team_commands = command_module("team")
        place = team_commands.TeamPlace(project=project)
        team_commands.reading.list_sessions(agent=whose, limit=asked.limit, place=place)
        return
    from smart_fork.finding.recent import list_recent

    found = list_recent(
        agent, project, asked.limit, everywhere=everywhere, automated=asked.include_automated, tag=asked.tag or "",
        archived=asked.archived,
    )  # fmt: skip
    if printed_as_json(found):
        return
    for why in filter(None, (*found.unread, found.project_notice)):
        say(why)
    say_passed_over(found.passed_over)
    if not found.sessions:
        say("No sessions here." + ("" if everywhere else " --all-projects looks everywhere."))
    wide = max((len(one.agent_type) for one in found.sessions), default=0)
    for one in found.sessions:
        out.row(
            plain(f"{short(one.session_id):<13}", "bold cyan"),
            f"{one.agent_type:<{wide}}",
            minute(one.last_modified),
            one.headline or one.title,
            *([plain(one.project_path, "dim")] if everywhere else []),
            *([plain(f"({mark})", "dim")] if (mark := place_mark(one.project_inferred_from, one.began_in)) else []),
            *([plain(f"(shared by {one.author})", "dim")] if one.author else []),
            *([plain(f"(fork of {short(one.forked_from)})", "dim")] if one.forked_from else []),
            *([plain(f"({'; '.join((*one.noted.marks, *one.noted.sentences))})", "dim")] if one.noted else []),
        )
    print_deleted_prompts(found.gone_prompts)
    if found.hidden_automated and len(found.sessions) < asked.limit:
        say(f"Automated sessions, hidden: {found.hidden_automated}. --include-automated shows them.")


def show(
    session: SessionArgument,
    at: Annotated[int | None, "Show the messages around this number."] = None,
    context: Annotated[int, typer.Option("--context", "-C", min=0, help="Messages before and after --at.")] = 3,
    no_pager: Annotated[bool, "Print all of it, without PAGER."] = False,
) -> None:
    """Print a session's conversation as Markdown, rendered on a terminal. `fork --at` takes the numbers of the
    messages.
    """
    from smart_fork.finding.conversation import Exported, ReadRange

    one = conversation_of(session, ReadRange(at, context or 0, context), Path.cwd())
    if printed_as_json(one):
        return
    if isinstance(one, Exported):
        texts, notes = [(str(one.markdown), "")], one.noted.sentences if one.noted else []
    else:
        texts, notes = list(one.as_markdown()), [one.notice if one.owner else "", one.left_out]
    if sys.stdout.isatty() or "FZF_PREVIEW_COLUMNS" in os.environ:
        from smart_fork.cli import pager

        pager.show(texts, pages=sys.stdout.isatty() and not no_pager)
    else:
        out.print("\n".join(next(zip(*texts, strict=True))))
    for sentence in filter(None, notes):
        say(sentence)


def export(
    session: SessionArgument,
    file: Annotated[Path | None, typer.Argument(help="File to write. Without it, print to stdout.")] = None,
    html: Annotated[bool, "Write one HTML page without scripts."] = False,
    markdown: Annotated[bool, "Write Markdown."] = False,
    force: Annotated[bool, "Replace an existing file."] = False,
) -> None:
    """Write a session to one file: prompts, answers, commands, and edits as diffs. Secrets are masked."""
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


def lineage(session: SessionArgument) -> None:
    """Show a session's family as a tree: parents and forks, running workers, and how to return to the parent."""
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
        out.print(f'No forks yet: smart-fork fork {short(family.session_id)} "PROMPT"')
    if family.return_command:
        out.print(f"To return to its parent: {family.return_command}")


def _trees(members: Sequence[Relative], asked: str) -> list[Tree]:
    from rich.tree import Tree

    mixed = len({one.agent_type for one in members}) > 1
    roots: list[Tree] = []
    path: list[Tree] = []  # from the root down to the one before
    for one in members:
        del path[one.depth :]
        label = _label(one, marked=one.session_id == asked, agent=AGENTS.title_of(one.agent_type) if mixed else "")
        if path:
            path.append(path[-1].add(label))
        else:
            path.append(Tree(label))
            roots.append(path[0])
    return roots


def _label(one: Relative, *, marked: bool, agent: str = "") -> Plain:
    """Return the lines of the session `one` in the tree: title (bold if `marked`), facts and running worker.

    `agent` is the name of its agent, if the tree has sessions of several agents.
    """
    from rich.cells import cell_len

    head = plain(short(one.session_id), "bold" if marked else "")
    if one.log_gone and not one.running:
        return head + plain("  its log is gone")
    # What is beside it: the lines of the tree, and the id.
    room = out.console.width - 4 * one.depth - cell_len(str(head)) - 2
    head += plain(f"  {cut_to(one.title, room)}", "bold" if marked else "")
    facts = [ago(one.last_activity), f"{one.turns} messages", f"{tokens_about(one.token_estimate)} tokens"]
    if agent:
        facts.insert(0, agent)
    if one.copies:
        facts.append(f"{len(one.copies) + 1} copies of its log")
    if one.started_by:
        facts.append(f"started by {short(one.started_by)}")
    lines = [" · ".join(filter(None, facts))]
    if at := one.left_parent_at:
        after = f"forked after message {at.message}: "
        lines.append(f'{after}"{cut_to(at.text, room - len(after))}"')
    if one.merged_from:
        lines.append(f"merged with {', '.join(map(short, one.merged_from))}")
    if made := one.commits:
        named = ", ".join(commit.commit[:8] for commit in made.commits[:COMMITS])
        more = f" and {left} more" if (left := made.count - COMMITS) > 0 else ""
        told = f"commits: {named}{more}; lines of these in HEAD now: {made.lines_today}" if made.count else ""
        lines.append("; ".join(filter(None, (told, made.notice))))
    if running := one.running:
        lines.append(f"{running.status}: worker {running.worker_id}  {one_line(running.attach)}")
    return head + plain("".join(f"\n{line}" for line in lines), "dim")
