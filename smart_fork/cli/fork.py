"""``fork``, of one session or of several; and what becomes of a fork, in words."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexer.values import json_of
from smart_fork.agents import AGENTS
from smart_fork.agents.options import Options, takes
from smart_fork.agents.references import Reference
from smart_fork.cli.command import Command, meant
from smart_fork.cli.options import HandedOption
from smart_fork.cli.output import as_values, complain, out, plain, printed_as_json, say, say_notes
from smart_fork.cli.progress import library_shown, starting
from smart_fork.cli.short_ids import short
from smart_fork.errors import Ambiguous, NotFound, SmartForkError, Usage
from smart_fork.finding.team_sessions import is_shared
from smart_fork.forking.request import BestSessions, BudgetOptions, ForkRequest
from smart_fork.forking.results import Forked, NotForked

if TYPE_CHECKING:
    from smart_fork.finding.session_library import Library
    from smart_fork.forking.results import ForkPrice, Selection, Way


_PROTECTED = "smart_fork.protected"


class ForkCommand(Command):
    """Counts the words behind ``--``: they are the prompt, whatever they look like."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click."""
        ctx.meta[_PROTECTED] = len(args) - args.index("--") - 1 if "--" in args else 0
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
        typer.Argument(
            metavar="[ID...] [PROMPT]",
            help="Sessions: ids, or numbers of the last answer. Then the prompt; alone it finds the session.",
        ),
    ] = None,
    asked: ForkRequest,
    best: BestSessions,
    options: Options,
    budget: BudgetOptions,
    merge: Annotated[bool, "Merge several sessions into one fork, within --budget."] = False,
) -> None:
    """Run a fork of a session; the original stays untouched. Of several sessions, each in its own git worktree.

    A prompt alone forks the session that fits best. What starts with a dash goes after "--":
    smart-fork fork 70f1a07f -- "-Werror breaks the build, fix it"
    """
    ids, prompt = _ids_and_prompt(words or [], ctx.meta[_PROTECTED])
    if ids and best.top is not None:
        raise Usage("--top searches for sessions and takes no id", "Give only the prompt.")
    several = best.top is not None or len(ids) > 1
    best = best if ids or best.top is not None else replace(best, top=1)
    asked = replace(
        asked,
        options=replace(options, prompt=prompt),
        budget=budget.wanted(),
        caller_session_id=AGENTS.caller_session(os.environ),
    )
    check_given(asked, best, several=several, merge=merge)
    if several and not merge:
        fork_several(ids, best, asked, in_worktrees=options.worktree if options.worktree is not None else True)
        return
    from smart_fork.forking.plan import fork_session

    with library_shown(asked.cwd) if best.top else nullcontext() as library:
        if library is not None:
            ((asked,), _) = _best_found(asked, best, library)
        else:
            asked = replace(asked, session=ids[0], merge=tuple(ids[1:]) if merge else None)
        with starting(asked.options.place, quiet=asked.dry_run):
            forked = fork_session(asked, (lambda: nullcontext(library)) if library is not None else library_shown)
    if not printed_as_json(forked):
        print_forked(forked, dry_run=asked.dry_run)


def check_given(asked: ForkRequest, best: BestSessions, *, several: bool, merge: bool) -> None:
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


def _ids_and_prompt(words: Sequence[str], behind: int) -> tuple[list[str], str | None]:
    """The sessions that come first, and the words of the prompt: all from the first that does not look like a session.

    The last of several words is the prompt unless it means a session. The last `behind` are the prompt.
    """
    if not words:
        raise Usage("No session and no prompt given", "`smart-fork find` and `smart-fork list` show sessions.")
    ids, rest = list[str](), list(words[: len(words) - behind])
    named = (
        not Reference.parsed(words[0]).looks_like_one
        and bool(words[1:])
        and (meant(words[0]) != words[0] or (len(words) == 2 and _is_session(words[0])))
    )
    while rest and (Reference.parsed(rest[0]).looks_like_one or (named and not ids)):
        if ids and len(rest) == 1 and not behind and not _is_session(rest[0]):
            break
        ids.append(meant(rest.pop(0)))
    return ids, " ".join((*rest, *words[len(words) - behind :])) or None


def _is_session(word: str) -> bool:
    from smart_fork.finding.sessions import is_session

    try:
        return is_session(one := meant(word)) or is_shared(one)
    except Ambiguous:
        raise
    except SmartForkError:
        return False


def print_forked(forked: Forked, *, dry_run: bool) -> None:
    """One fork, for a person."""
    say_notes(forked.warnings)
    if forked.selection is not None:
        for one in (forked.selection, *forked.merged):
            print_selection(one, in_full=dry_run, alone=not (forked.merged or forked.handed))
    if forked.handed is not None:
        from smart_fork.forking.handover import notes

        say_notes(notes(forked.handed, forked.agent_type))
    if forked.ways:
        for line in ways_in_words(forked.ways):
            say(line)
    elif forked.price is not None and forked.selection is None:
        say(f"note: {price_in_words(forked.price)}")
    if forked.news:
        say(forked.news)
    if dry_run:
        out.line(forked.command)
        return
    out.line(f"Forked {forked.resume_session_id} as {forked.new_session_id or '(id not known yet)'}")
    out.line(
        f"  {AGENTS.title_of(forked.agent_type)}, worker {forked.worker_id} in "
        f"{forked.terminal_id or 'a process'}, directory {forked.cwd}"
    )
    if forked.attach:
        out.line(f"  watch it: {forked.attach}")
    if forked.log:
        out.line(f"  its output: {forked.log}")


def print_selection(selection: Selection, *, in_full: bool, alone: bool = True) -> None:
    """Print a budgeted fork's figures, and before a start each exchange.

    Where it is `alone`, and its own agent's, it begins as the session does.
    """
    parts = f"{selection.kept} of {selection.kept + selection.left_out} exchanges"
    share = f"about {selection.tokens:,} of {selection.whole_tokens:,} tokens"
    begins = f", new from message {selection.new_from} on" if alone and selection.new_from is not None else ""
    say(f"note: Conversation of {short(selection.session_id)}: {parts}, {share}{begins}")
    for one in selection.exchanges if in_full else ():
        mark = {"whole": "+", "shortened": "≈", "part": "~", "words": "~", "nothing": " "}[one.kept]
        tokens = f"{one.kept_tokens:,} of {one.tokens:,}" if one.kept_tokens else f"{one.tokens:,}"
        why = f"  ({one.why})" if one.why else ""
        say(f"  {mark} {one.number:>3}  {tokens:>20}  {one.title}{why}")


def ways_in_words(ways: Sequence[Way]) -> Iterator[str]:
    """Describe the size of each kind of fork, side by side, for a person."""
    from smart_fork.forking.plan import parts_in_words, way_in_words

    yield from parts_in_words(ways)
    yield "Tokens that each way to fork loads in all, with instructions and tools:"

    for one in ways:
        yield f"  {one.option or 'whole session':<22} {one.tokens:>10,} tokens  {way_in_words(one)}"


def price_in_words(price: ForkPrice) -> str:
    """Describe the tokens that a fork loads, for a person."""
    from smart_fork.finding.fork_worth import cache_in_words

    of = f" of {price.whole_tokens:,}" if price.tokens < price.whole_tokens else ""
    cached = cache_in_words(price.cached_until, price.cached_tokens)
    return ", ".join(filter(None, (f"It loads about {price.tokens:,}{of} tokens", cached)))


def fork_several(ids: Sequence[str], best: BestSessions, like: ForkRequest, *, in_worktrees: bool | str) -> None:
    """Fork them, or the best that are found, as `like` says; and say of each what became of it.

    Exits with 1 if one was not started, with 3 if none fits.

    Raises:
        SmartForkError: none was started.
    """
    from smart_fork.finding.ranking import LIKELY_SCORE
    from smart_fork.forking.search_and_fork import fan_out

    with library_shown(like.cwd) as library:
        asked, left_out = [replace(like, session=one) for one in ids], 0
        if best.top is not None:
            asked, left_out = _best_found(like, best, library)
        with starting(like.options.place, quiet=like.dry_run):
            answer = fan_out(asked, in_worktrees=in_worktrees, library=lambda: nullcontext(library))
    answer = replace(answer, left_out=left_out)
    if not printed_as_json(answer):
        _print_forks(answer.forks, dry_run=like.dry_run)
        if left_out:
            least = LIKELY_SCORE if best.min_score is None else best.min_score
            say(f"note: {left_out} more were skipped: their scores are below {least:.2f}. --min-score 0 takes all.")
    if any(isinstance(one, NotForked) for one in answer.forks):
        raise typer.Exit(1)


def _best_found(like: ForkRequest, best: BestSessions, library: Library) -> tuple[list[ForkRequest], int]:
    """The best of what is found; where none fits, that is said beside what was found."""
    from smart_fork.cli.found import print_hits
    from smart_fork.finding.answer import Found
    from smart_fork.forking.search_and_fork import best_of, search_for

    found = library.find(search_for(like, best))
    try:
        asked, left_out = best_of(found, like, best)
    except NotFound as error:
        shown = found.results[: best.top] if isinstance(found, Found) else ()
        if not shown:
            raise
        told = {"prompt": like.options.prompt or "", "forks": [], "results": json_of(shown), **as_values(error)}
        if not printed_as_json(told):
            print_hits(shown)
        complain(error)
        raise typer.Exit(error.exit_code) from error
    titles = {str(Reference(hit.agent_type, hit.session_id)): hit.headline for hit in getattr(found, "results", ())}
    for one in asked:
        say(f"note: Best session: {titles[str(one.session)]}")
    return asked, left_out


def _print_forks(forks: Sequence[Forked | NotForked], *, dry_run: bool) -> None:
    for one in forks:
        if isinstance(one, NotForked):
            message = f"{one.session_name}, a fork of {one.resume_session_id}: {one.error}"
            complain(SmartForkError(message, one.hint))
        else:
            print_forked(one, dry_run=dry_run)
    started = [one.worker_id for one in forks if isinstance(one, Forked) and one.worker_id]
    if started:
        out.print(plain(f"Compare them: smart-fork compare {' '.join(started)}"))
