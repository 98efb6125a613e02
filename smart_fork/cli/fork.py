"""``fork``."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Annotated, Any

import typer

from smart_fork.agents.options import Options, takes
from smart_fork.caller import caller_session
from smart_fork.cli.command import Command
from smart_fork.cli.forked import print_forked
from smart_fork.cli.options import HandedOption
from smart_fork.cli.output import printed_as_json
from smart_fork.cli.progress import library_shown, starting
from smart_fork.errors import Usage
from smart_fork.finding.team_search import is_shared
from smart_fork.forking.request import Best, BudgetAsked, ForkRequest

_PROTECTED = "smart_fork.protected"


class ForkCommand(Command):
    """Remembers whether a word stands behind ``--``: then the last one is the prompt, whatever it looks like."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click."""
        ctx.meta[_PROTECTED] = "--" in args[:-1]
        return super().parse_args(ctx, args)


#: Commands that are of a class of their own.
COMMAND_CLASSES = {"fork": ForkCommand}


_Worktree = Annotated[
    bool | None,
    typer.Option("--worktree/--no-worktree", "-w", help="Run in a new git worktree. Default for several forks."),
]


@takes(
    without=("skip_permissions",),
    worktree=_Worktree,
    as_agent=HandedOption,
    order="at intent also top min_score as_agent worktree worktree_name with_changes place cwd brief unmasked name "
    "dry_run budget keep drop merge",
)
def fork(
    *,
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID... [PROMPT]", help="Session ids (8 characters or more), then the prompt."),
    ] = None,
    asked: ForkRequest,
    best: Best,
    options: Options,
    budget: BudgetAsked,
    merge: Annotated[bool, "Merge several sessions into one fork, within --budget."] = False,
) -> None:
    """Run a fork of a session; the original stays untouched. Of several sessions, each in its own git worktree.

    A prompt that starts with a dash goes after "--":  smart-fork fork 70f1a07f -- "-Werror breaks the build, fix it"
    """
    given = list(words or ())
    searched = best.top is not None
    ids, prompt = ([], _prompt_alone(given)) if searched else _ids_and_prompt(given, protected=ctx.meta[_PROTECTED])
    asked = replace(
        asked,
        options=replace(options, prompt=prompt),
        budget=budget.wanted(),
        caller_session_id=caller_session(os.environ),
    )
    check_given(asked, best, several=searched or len(ids) > 1, merge=merge)
    if searched or (len(ids) > 1 and not merge):
        from smart_fork.cli.fan_out import fork_several

        fork_several(ids, best, asked, in_worktrees=options.worktree if options.worktree is not None else True)
        return
    from smart_fork.forking.plan import fork_session

    asked = replace(asked, session=ids[0], merge=tuple(ids[1:]) if merge else None)
    with starting(asked.options.place, quiet=asked.dry_run):
        forked = fork_session(asked, library_shown)
    if not printed_as_json(forked):
        print_forked(forked, dry_run=asked.dry_run)


def check_given(asked: ForkRequest, best: Best, *, several: bool, merge: bool) -> None:
    """Refuse options that do not go together on the command line.

    Raises:
        Usage: some do not.
    """
    searched = best.top is not None
    if best.min_score is not None and not searched:
        raise Usage("--min-score is only for --top", "A session given by id is forked with any score.")
    if merge and searched:
        raise Usage("--merge goes with neither --at nor --top", "Name the sessions and an intent.")
    if several and not merge and asked.budget is not None:
        raise Usage("--budget is for one session", "Fork each by itself, or --merge them into one.")
    if several and not merge and not (asked.at is None or asked.at_match):
        raise Usage("--at takes a message's number only for one session", "Use --at match, or fork them one by one.")
    needs = asked.at_match or searched
    if needs and not asked.looked_for.strip():
        which = "--top and --at match need" if several else "--at match needs"
        raise Usage(f"{which} an intent", 'Give an intent: --intent "…", or a prompt.')
    if (asked.intent is not None or asked.also) and not (needs or asked.budget):
        option = "--also" if asked.intent is None else "--intent"
        which, what = (
            ("--at match and --top", "the forks do") if several else ("--at match, --budget and --top", "the fork does")
        )
        raise Usage(f"{option} is only for {which}", f"Without them, the prompt says what {what}.")


def _ids_and_prompt(words: list[str], *, protected: bool) -> tuple[list[str], str | None]:
    """The last of several words is the prompt, unless it means a session and does not stand behind ``--``."""
    if not words:
        raise Usage("No session given", "`smart-fork find` and `smart-fork list` show their ids.")
    if len(words) == 1 or (not protected and _is_session(words[-1])):
        return words, None
    return words[:-1], words[-1]


def _is_session(word: str) -> bool:
    from smart_fork.agents.references import names_session

    if not names_session(word):  # as nearly every prompt
        return False
    from smart_fork.finding.sessions import is_session

    return is_session(word) or is_shared(word)


def _prompt_alone(words: list[str]) -> str | None:
    if len(words) > 1:
        raise Usage("--top searches for sessions and takes no id", "Give only the prompt, in quotation marks.")
    return words[0] if words else None
