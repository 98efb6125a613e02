"""The answers of ``find`` as people read them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from smart_fork.agents import AGENTS
from smart_fork.cli.output import out, plain, say, say_passed_over
from smart_fork.cli.short_ids import short
from smart_fork.snippets import minute, quoted

if TYPE_CHECKING:
    from smart_fork.finding.answer import Answer, Found, GonePrompt, IndexState
    from smart_fork.finding.hit import CacheUse, Explanation, Hit

#: Lines of a quotation, and what stands below a result's title.
_QUOTED, INDENT = 1, "    "
#: Commits that are named one by one.
_COMMITS = 3


def print_found(answer: Answer, min_score: float | None = None) -> None:
    """An answer of `find` for a person."""
    from smart_fork.finding.answer import Unsearched

    if isinstance(answer, Unsearched):
        say(answer.message)
        for number, step in enumerate(answer.next_steps, start=1):
            say(f"  {number}. {step}")
        if answer.team_error:
            say(answer.team_error)
        _print_fallback(answer)
        return
    print_hits(answer.results, known=not answer.chance_is_unknown)
    _print_fallback(answer)
    print_gone(answer.gone_prompts)
    _print_state(answer, min_score)
    _print_next(answer)


def _print_next(answer: Found) -> None:
    """What to type next: to fork the best, or to read it first; where none fits, what else to do."""
    from smart_fork.finding.ranking import FITS

    least = FITS if answer.engine == "builtin" and answer.code is None else 0.0
    fitting = [hit for hit in answer.results if hit.score >= least]
    best = next((hit for hit in fitting if not hit.warning), None)
    if answer.code and not answer.results:
        return
    if (answer.unread_notice or answer.early_notice) and not fitting:
        say("Next: smart-fork index run, then ask again")
    elif answer.language_notice and answer.results and not fitting:
        say(f"Next: smart-fork show {short(answer.results[0].session_id)} reads the best so far")
    elif answer.results and not fitting:
        say('Next: smart-fork new "PROMPT": start a new session, no past one fits')
        if answer.project_path is not None:
            say("      or search everywhere: --all-projects")
    elif best is not None:
        name = short(best.session_id)
        say(f'Next: {best.suggested_fork(name)} "PROMPT"')
        if best.fork_note:
            say(f"      {best.fork_note}")
        say(f"      smart-fork show {name} reads it first")
    elif fitting and not AGENTS[fitting[0].agent_type].has("starter"):
        say(f'Next: {fitting[0].suggested_fork(short(fitting[0].session_id))} "PROMPT"')
    elif fitting:
        say(f"Next: smart-fork show {short(fitting[0].session_id)} reads the best one, which cannot be forked")


def print_hits(hits: Sequence[Hit], *, known: bool = True) -> None:
    """Print results for a person: two lines and a quotation each, then why some cannot be forked.

    Their chances are printed where they are `known`.
    """
    for hit in hits:
        _print_hit(hit, known=known)
    for warning in dict.fromkeys(hit.warning for hit in hits if hit.warning):
        ranks = ", ".join(str(hit.rank) for hit in hits if hit.warning == warning)
        out.row(plain(f"Cannot be forked ({ranks}): {warning}", "yellow"))


def _print_hit(hit: Hit, *, known: bool) -> None:
    from smart_fork.finding.ranking import chance, percent

    of_lines = hit.wrote is not None and hit.score == hit.wrote.share
    score = f"{percent(hit.score):>6} {'of lines' if of_lines else chance(hit.score):<11}"
    score = score if known or of_lines else f"{'chance unknown':<18}"
    out.row(plain(f"{hit.rank:>2}."), plain(score, "bold green"), plain(hit.title, "bold"))
    out.row(plain(f"{INDENT}{' · '.join(_about(hit))}", "cyan"))
    if wrote := hit.wrote:
        what = f"wrote {wrote.lines} of {wrote.of} lines, most of them in exchange {wrote.exchange}"
        where = f", commit {', '.join(one[:8] for one in wrote.commits[:_COMMITS])}" if wrote.commits else ""
        out.row(plain(f"{INDENT}{what}{where}", "magenta"))
    for sentence in hit.noted.sentences if hit.noted else ():
        out.row(plain(f"{INDENT}{sentence}", "yellow"))
    said = f"User: {hit.wrote.asked}" if hit.wrote else hit.spoken
    for line in said.splitlines()[:_QUOTED]:
        out.row(plain(f"{INDENT}│ {quoted(line, 160)}", "dim"))
    if why := hit.explain:
        out.print(plain(f"{INDENT}{_in_words(why)}", "magenta"))
        for one in why.phrasings:
            out.print(plain(f"{INDENT}  {_given(one.points)} of it from: {quoted(one.text, 120)}", "magenta"))
        if why.cache:
            out.print(plain(f"{INDENT}{_cache_use(why.cache)}", "magenta"))
    if hit.explain or logging.getLogger("smart_fork").isEnabledFor(logging.INFO):
        place = hit.passage_place
        out.print(plain(f"{INDENT}{hit.session_id}{f'  {place}' if place else ''}", "dim"))


def _about(hit: Hit) -> list[str]:
    """Return what helps to choose: the session, its age, its outcome, its price, its relatives and its owner."""
    from smart_fork.finding.results import place_mark
    from smart_fork.finding.worth import cache_in_words

    family, at_match = hit.lineage.family_size, hit.price.tokens_at_match
    return [
        *filter(None, (hit.agent_type, short(hit.session_id), minute(hit.last_activity)[:10], *hit.became_of)),
        f"{hit.price.tokens:,} tokens{f' ({cached})' if (cached := cache_in_words(hit.price.cached_until)) else ''}",
        *([f"{at_match:,} up to the match"] if hit.suggested_at is not None and at_match else []),
        *([f"about {hit.within_budget:,} within a budget of {budget}"] if (budget := hit.suggested_budget) else []),
        *([f"alone it {hit.resumed.sentence}"] if hit.resumed and hit.explain else []),
        *([f"{family} in its family"] if family > 1 else []),
        *filter(None, [place_mark(hit.project_inferred_from, hit.began_in)]),
        *(hit.noted.marks if hit.noted else []),
        *([f"shared by {hit.author}"] if hit.author else []),
        *([f"shared by {hit.origin.owner}"] if hit.origin else ["shared"] if hit.also_remote else []),
    ]


def _in_words(why: Explanation) -> str:
    reranked = f"; the reranker makes it {why.reranked:.2f}" if why.reranked is not None else ""
    return f"{_given(why.points)} for it, {why.against:.1f} against it: {why.score:.2f}{reranked}"


def _cache_use(cache: CacheUse) -> str:
    from smart_fork.finding.worth import age_of, ago

    used = f"{ago(age)} ago" if (age := age_of(cache.last_request)) is not None else "unknown"
    return f"Its log says that the cache lives {ago(cache.seconds)}; last request: {used}"


def _given(points: Mapping[str, float]) -> str:
    return " + ".join(f"{value:.1f} {part.replace('_', ' ')}" for part, value in points.items() if value) or "nothing"


def print_gone(prompts: Sequence[GonePrompt]) -> None:
    """Print the prompts of deleted sessions, apart from sessions that can be forked."""
    if prompts:
        say("Prompts of deleted sessions, which cannot be shown or forked:")
    for one in prompts:
        more = f"  ({one.prompts} prompts)" if one.prompts > 1 else ""
        out.row(plain(f"    {minute(one.prompted_at)[:10]}  {one.agent_type}  {one.prompt}{more}", "dim"))


def _print_fallback(answer: Answer) -> None:
    sessions = answer.fallback_sessions or ()
    if sessions:
        say("The most recent sessions here:")
    for one in sessions:
        out.row(plain(f"    {one.session_id}  {one.agent_type}  {one.title}"))


def _print_state(answer: Found, min_score: float | None = None) -> None:
    from smart_fork.finding.ranking import LIKELY, percent

    state = answer.index
    if (code := answer.code) and code.unknown:
        all_of_them = "this" if code.unknown == code.lines else f"{code.unknown} of {code.lines} lines"
        say(f"No session is known to have written {all_of_them}.")
    if not answer.results and answer.code is None:
        everywhere = answer.project_path is None
        found = f"scores {min_score:g} or more" if min_score else "found"
        say(
            f"Nothing {found} in {state.sessions} sessions."
            + ("" if everywhere else " --all-projects looks everywhere.")
        )
    elif code is None and (best := max(hit.score for hit in answer.results)) < LIKELY and answer.engine == "builtin":
        if not answer.chance_is_unknown:
            say(f"None of these is a sure match: the best score is {percent(best)}.")
        if not answer.also:
            say("Add other phrasings: --also TEXT, once for each.")
    if answer.search_error:
        say(f"Searched by {answer.search_mode} only: {answer.search_error}")
    for notice in (
        answer.project_notice, answer.unread_notice, answer.early_notice, answer.order_notice, answer.language_notice,
        answer.team_error, *answer.unread,
    ):  # fmt: skip
        if notice:
            say(notice)
    say_passed_over(answer.passed_over)
    if answer.rerank_error:
        say(f"Not reranked: {answer.rerank_error}")
    if state.problem:
        searched = "Sessions newer than the index were" if state.sessions else "Your own sessions were"
        say(f"{searched} not searched. {state.problem}")
    elif not state.complete and (answer.query or state.unread_logs):
        say(f"The index is not complete yet: {_missing(state)}. {_who_completes_it(answer)}")


def _missing(state: IndexState) -> str:

    parts = []
    if state.embedded < state.chunks:
        done = f"{state.embedded} of {state.chunks} passages are embedded"
        parts.append(f"{done} ({state.covered.in_words()})")
    if state.unread_logs:
        parts.append(f"{state.unread_logs} logs are not read yet")
    return ", ".join(parts)


def _who_completes_it(answer: Found) -> str:
    if answer.background_notice:
        return f"{answer.background_notice} `smart-fork index run` waits for it."
    return "`smart-fork index run` completes it."
