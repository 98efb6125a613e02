"""The commands ``fork`` and ``branch``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from indexer.json_values import json_of
from smart_fork.agents import AGENTS
from smart_fork.agents.references import Reference
from smart_fork.agents.request_fields import Options, takes
from smart_fork.cli.command import WORDS_BEHIND_DASHES, session_references
from smart_fork.cli.options import HandedOption, SessionArgument
from smart_fork.cli.output import as_values, complain, library_shown, out, printed_as_json, say, say_notes, starting
from smart_fork.cli.session_ids import short
from smart_fork.errors import Ambiguous, NotFound, SmartForkError, Usage
from smart_fork.finding.answer import Found
from smart_fork.finding.fork_suitability import cache_in_words
from smart_fork.finding.ranking import LIKELY_SCORE
from smart_fork.finding.session_lookup import is_session
from smart_fork.finding.team_sessions import is_shared
from smart_fork.forking.plan import fork_session
from smart_fork.forking.request import BestSessions, BranchRequest, BudgetOptions, ForkRequest
from smart_fork.forking.results import Forked

if TYPE_CHECKING:
    from smart_fork.finding.session_library import Library
    from smart_fork.forking.results import Branched, ForkPrice, NotForked, Selection, Way


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
    """Run a fork of a session; the original stays untouched. Each of several forks gets its own git worktree.

    A prompt alone forks the session that fits best. What starts with a dash goes after "--":
    smart-fork fork 70f1a07f -- "-Werror breaks the build, fix it"
    """
    ids, prompt = _ids_and_prompt(words or [], ctx.meta[WORDS_BEHIND_DASHES])
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
    """Refuse contradictory options of ``fork``.

    With `several`, there is more than one session to fork; with `merge`, these become one fork.
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
    """Split the `words` of a ``fork`` command into session ids and a prompt; the last `behind` words follow ``--``.

    The prompt begins with the first word that does not look like an id. If all do, the last of several words is the
    prompt, unless a session has that id.
    """
    if not words:
        raise Usage("No session and no prompt given", "`smart-fork find` and `smart-fork list` show sessions.")
    ids, rest = list[str](), list(words[: len(words) - behind])
    named = (
        not Reference.parsed(words[0]).looks_like_one
        and bool(words[1:])
        and (session_references(words[0]) != words[0] or (len(words) == 2 and _is_session(words[0])))
    )
    while rest and (Reference.parsed(rest[0]).looks_like_one or (named and not ids)):
        if ids and len(rest) == 1 and not behind and not _is_session(rest[0]):
            break
        ids.append(session_references(rest.pop(0)))
    return ids, " ".join((*rest, *words[len(words) - behind :])) or None


def _is_session(word: str) -> bool:
    try:
        return is_session(one := session_references(word)) or is_shared(one)
    except Ambiguous:
        raise
    except SmartForkError:
        return False


def print_forked(forked: Forked, *, dry_run: bool) -> None:
    """Print which part of a session the fork got, how many tokens it loads, and how to reach it.

    With `dry_run`, print the command that would start the fork.
    """
    say_notes(forked.warnings)
    if forked.selection is not None:
        for one in (forked.selection, *forked.merged):
            print_selection(one, in_full=dry_run, alone=not (forked.merged or forked.handed))
    if forked.handed is not None:
        say_notes(forked.handed.notes(forked.agent_type))
    if forked.ways:
        for line in ways_in_words(forked.ways):
            say(line)
    elif forked.price is not None and forked.selection is None:
        say(f"note: {price_in_words(forked.price)}")
    if forked.news:
        say(forked.news)
    if dry_run:
        out.print(forked.command)
        return
    out.print(f"Forked {forked.resume_session_id} as {forked.new_session_id or '(id not known yet)'}")
    out.print(
        f"  {AGENTS.title_of(forked.agent_type)}, worker {forked.worker_id} in "
        f"{forked.terminal_id or 'a process'}, directory {forked.cwd}"
    )
    if forked.attach:
        out.print(f"  watch it: {forked.attach}")
    if forked.log:
        out.print(f"  its output: {forked.log}")


def print_selection(selection: Selection, *, in_full: bool, alone: bool = True) -> None:
    """Print how many exchanges and tokens of a session its fork keeps within the budget; with `in_full`, each exchange.

    With `alone` (one session, in its own agent), also print from which message on the fork's log is new.
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
    """Yield lines that compare the ways to fork a session, whole or shortened, by the tokens they load."""
    yield from filter(None, (one.parts for one in ways))
    yield "Tokens that each way to fork loads in all, with instructions and tools:"

    for one in ways:
        yield f"  {one.option or 'whole session':<22} {one.tokens:>10,} tokens  {one.last_use}"


def price_in_words(price: ForkPrice) -> str:
    """Return a sentence with the number of tokens that a fork loads, and how many of them are cached."""
    of = f" of {price.whole_tokens:,}" if price.tokens < price.whole_tokens else ""
    cached = cache_in_words(price.cached_until, price.cached_tokens)
    return ", ".join(filter(None, (f"It loads about {price.tokens:,}{of} tokens", cached)))


def fork_several(ids: Sequence[str], best: BestSessions, like: ForkRequest, *, in_worktrees: bool | str) -> None:
    """Fork the sessions `ids`, or the `best` ones of a search, with the options of `like`. Print each result.

    Each fork gets a new git worktree if `in_worktrees` is true, or is a name for the worktrees. Exit with 1 if a fork
    was not started, with 3 if no session fits.
    """
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
    if not all(isinstance(one, Forked) for one in answer.forks):
        raise typer.Exit(1)


def _best_found(like: ForkRequest, best: BestSessions, library: Library) -> tuple[list[ForkRequest], int]:
    """Search for the `best` sessions. Return a fork request like `like` for each, and the number with too low scores.

    If no session fits, print the results of the search and exit with 3.
    """
    from smart_fork.cli.result_list import print_hits
    from smart_fork.forking.search_and_fork import best_of

    found = library.find(best.search_request(like))
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
        if isinstance(one, Forked):
            print_forked(one, dry_run=dry_run)
        else:
            message = f"{one.session_name}, a fork of {one.resume_session_id}: {one.error}"
            complain(SmartForkError(message, one.hint))
    started = [one.worker_id for one in forks if isinstance(one, Forked) and one.worker_id]
    if started:
        out.print(f"Compare them: smart-fork compare {' '.join(started)}")


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
    """Copy a session under its own title, to resume it later. The original stays untouched."""
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
        print_selection(branched.selection, in_full=False)
    if named:
        out.print(f'Branched conversation "{branched.title}".')
    else:
        out.print("Branched conversation.")
        out.print(f"  its title: {branched.title}")
    started = branched.started
    if started is None:
        out.print(f"To resume the branch: {branched.resume_command}")
    else:
        say_notes(started.warnings)
        out.print(f"  worker {started.worker_id} in {started.terminal_id or 'a process'}")
        if started.attach:
            out.print(f"  watch it: {started.attach}")
    out.print(f"To resume the original: {branched.resume_original}")
