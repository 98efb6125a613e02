"""``fork``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smart_fork.agents.options import Options
from smart_fork.agents.references import Resolved, here
from smart_fork.budget.wanted import Wanted, wanted_of
from smart_fork.caller import caller_session
from smart_fork.cli.agents import HandedOption
from smart_fork.cli.command import Command
from smart_fork.cli.forked import print_forked
from smart_fork.cli.options import NOTHING_SAID, takes_options
from smart_fork.cli.output import print_json, say
from smart_fork.cli.progress import progress_bar, starting
from smart_fork.cli.search import AlsoOption, JsonOption
from smart_fork.errors import Usage
from smart_fork.team.login import is_known as knows_a_team
from smart_fork.team.workers import is_shared, on_this_machine

if TYPE_CHECKING:
    from smart_fork.forking.spending import Spending
    from smart_fork.forking.started import Forked

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


@takes_options(
    without=("skip_permissions",), worktree=_Worktree, order="worktree worktree_name with_changes place cwd name"
)
def fork(  # noqa: PLR0917 - typer's way
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID... [PROMPT]", help="Session ids (8 characters or more), then the prompt."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", help="Fork after this message, or `match`: after the best answer."),
    ] = None,
    intent: Annotated[
        str | None,
        typer.Option("--intent", help="Text for --at match, --budget and --top. Default: the prompt."),
    ] = None,
    also: AlsoOption = None,
    top: Annotated[int | None, typer.Option("--top", help="Fork the N best sessions of this project.")] = None,
    min_score: Annotated[
        float | None,
        typer.Option("--min-score", help="Lowest score for --top. Default: 0.3."),
    ] = None,
    as_agent: HandedOption = None,
    options: Options = NOTHING_SAID,
    cwd: Annotated[Path | None, typer.Option("--cwd", help="Working directory. Default: the session's own.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command and its cost. Start nothing.")] = False,
    as_json: JsonOption = False,
    budget: Annotated[
        str | None,
        typer.Option("--budget", help="Keep only relevant exchanges, up to N tokens (30k) or `match`."),
    ] = None,
    keep: Annotated[str | None, typer.Option("--keep", help="Exchanges that a --budget always keeps: 3,5-7.")] = None,
    drop: Annotated[str | None, typer.Option("--drop", help="Exchanges that a --budget never keeps.")] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Merge several sessions into one fork, within --budget.")
    ] = False,
) -> None:
    """Run a fork of a session; the original stays untouched. Of several sessions, each in its own git worktree.

    A prompt that starts with a dash goes after "--":  smart-fork fork 70f1a07f -- "-Werror breaks the build, fix it"
    """
    if options.worktree is False and options.with_changes:
        raise Usage("--no-worktree goes with neither --worktree-name nor --with-changes")
    if min_score is not None and top is None:
        raise Usage("--min-score is only for --top", "A session given by id is forked with any score.")
    how: dict[str, Any] = {
        "cwd": str(cwd) if cwd else None,
        "dry_run": dry_run,
        "caller_session_id": caller_session(os.environ),
    }
    how |= {"as_agent": as_agent} if as_agent else {}
    wanted = wanted_of(budget, keep, drop)
    said = list(words or ())
    ids, prompt = _ids_and_prompt(said, protected=ctx.meta[_PROTECTED]) if top is None else ([], _prompt_alone(said))
    if merge:
        both = _check_merge(wanted, at, top)
        _fork_merged(ids, replace(options, prompt=prompt), intent, also or (), both, how, as_json=as_json)
        return
    if top is not None or len(ids) > 1:
        if wanted is not None:
            raise Usage("--budget is for one session", "Fork each by itself, or --merge them into one.")
        from smart_fork.cli.fan_out import Wanted, fork_several

        how["in_worktrees"] = options.worktree if options.worktree is not None else True
        with on_this_machine(ids, keep=not how["dry_run"]) as meant:
            asked = Wanted(tuple(meant), prompt, at, intent, top, min_score, tuple(also or ()))
            fork_several(asked, options, how, as_json=as_json)
        return
    _fork_one(ids[0], replace(options, prompt=prompt), at, intent, also or (), wanted, how, as_json=as_json)


def _check_merge(wanted: Wanted | None, at: str | None, top: int | None) -> Wanted:
    if wanted is None:
        raise Usage("--merge needs a budget", "Give a budget for all of them: --budget 40k.")
    if at is not None or top is not None:
        raise Usage("--merge goes with neither --at nor --top", "Name the sessions and an intent.")
    return wanted


def _fork_merged(  # noqa: PLR0917 - what the command was given
    ids: list[str], options: Options, intent: str | None, also: Sequence[str], wanted: Wanted,
    how: dict[str, Any], *, as_json: bool,
) -> None:  # fmt: skip
    from smart_fork.forking.merger import fork_merged

    with ExitStack() as stack:
        meant = [stack.enter_context(_on_this_machine(one, dry_run=how["dry_run"])) for one in ids]
        spending = stack.enter_context(
            spending_on(wanted, options.prompt if intent is None else intent, also, quiet=as_json)
        )
        if spending is None:
            raise TypeError("A budget was given")
        forked = fork_merged([one.session_id for one in meant], options, spending, **how)
    if as_json:
        print_json(forked.as_json())
    else:
        print_forked(forked, dry_run=how["dry_run"])


def _fork_one(  # noqa: PLR0917 - what the command was given
    session: str, options: Options, at: str | None, intent: str | None, also: Sequence[str], wanted: Wanted | None,
    how: dict[str, Any], *, as_json: bool,
) -> None:  # fmt: skip
    from smart_fork.forking.launch import fork_session

    if at != "match" and wanted is None and (intent is not None or also):
        given = "--also" if intent is None else "--intent"
        raise Usage(
            f"{given} is only for --at match, --budget and --top", "Without them, the prompt says what the fork does."
        )
    number = message_number(at) if at != "match" else None
    with (
        _on_this_machine(session, dry_run=how["dry_run"]) as resolved,
        spending_on(wanted, options.prompt if intent is None else intent, also, quiet=as_json) as spending,
    ):
        session = resolved.session_id
        how |= {"budget": spending} if spending else {}
        if how["dry_run"] and spending is None:
            how["preview"] = _preview(options, intent, also)
        if at == "match":
            forked = _fork_at_match(session, options, intent, also, as_json=as_json, how=how)
        else:
            with starting(options.place, quiet=as_json or how["dry_run"]):
                forked = fork_session(session, options, at=number, **how)
    forked = replace(forked, resolved=resolved.by)
    if as_json:
        print_json(forked.as_json())
    else:
        print_forked(forked, dry_run=how["dry_run"])


@contextmanager
def spending_on(
    wanted: Wanted | None, asked: str | None, also: Sequence[str], *, quiet: bool
) -> Iterator[Spending | None]:
    """The budget, and what it is to be spent on."""
    if wanted is None:
        yield None
        return
    from smart_fork.forking.spending import Spending
    from smart_fork.retrieval.background import engine
    from smart_fork.retrieval.meaning import meaning_of

    intent = asked or ""
    with progress_bar(quiet=quiet) as progress:
        own = engine(progress)
        with meaning_of(intent, also, own.embedder) as meaning:  # while the session is read
            yield Spending(wanted, intent, tuple(also), own, meaning)


def _preview(options: Options, intent: str | None, also: Sequence[str]) -> Spending | None:
    """What the ways to fork are compared by; nothing where there is no index to ask, for a dry run makes none."""
    from indexer.paths import index_db

    asked = options.prompt if intent is None else intent
    if not (asked or "").strip() or not index_db().exists():
        return None
    from smart_fork.budget.amount import MATCH
    from smart_fork.forking.spending import Spending
    from smart_fork.retrieval.background import engine

    return Spending(Wanted(MATCH), asked or "", tuple(also), engine(None))


@contextmanager
def _on_this_machine(session: str, *, dry_run: bool) -> Iterator[Resolved]:
    """The session; one of the team's is written here first, and taken away again after a dry run or a failure."""
    if not knows_a_team():
        yield here(session)
        return
    from smart_fork.team.take import found_or_taken

    with found_or_taken(session, keep=not dry_run) as (resolved, taken):
        for warning in taken.warnings if taken else ():
            say(warning)
        yield resolved


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
    from smart_fork.forking.fan_out import is_session

    return is_session(word) or is_shared(word)


def _prompt_alone(words: list[str]) -> str | None:
    if len(words) > 1:
        raise Usage("--top searches for sessions and takes no id", "Give only the prompt, in quotation marks.")
    return words[0] if words else None


def _fork_at_match(
    session: str, options: Options, intent: str | None, also: Sequence[str], *, as_json: bool, how: dict[str, Any]
) -> Forked:
    from smart_fork.forking.match import fork_at_match
    from smart_fork.retrieval.background import engine

    wanted = options.prompt if intent is None else intent
    if not (wanted and wanted.strip()):
        raise Usage("--at match needs an intent", 'Give an intent: --intent "…", or a prompt.')
    with progress_bar(quiet=as_json) as progress:
        return fork_at_match(session, wanted, engine(progress), options, also=also, **how)


def message_number(at: str | None) -> int | None:
    """The number that `--at` was given, if any.

    Raises:
        Usage: it is none.
    """
    if at is None:
        return None
    if not (at.isascii() and at.isdigit()):
        raise Usage(f"--at {at} is not a message number", "`smart-fork show ID` prints the numbers; `match` finds one.")
    return int(at)
