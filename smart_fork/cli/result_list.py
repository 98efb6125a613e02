"""Lists of sessions for people: search results, with notices and the next commands."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from smart_fork.agents import AGENTS
from smart_fork.cli.output import Plain, cut_to, one_line, out, plain, say, say_passed_over, wrapped
from smart_fork.cli.session_ids import short
from smart_fork.display_text import in_words, minute, printable, quoted, tokens_about
from smart_fork.finding.answer import Found, Unsearched
from smart_fork.finding.fork_suitability import age_of, cache_in_words
from smart_fork.finding.query import unnamed
from smart_fork.finding.ranking import FIT_THRESHOLD, LIKELY_SCORE, percent
from smart_fork.finding.results import place_mark

if TYPE_CHECKING:
    from smart_fork.finding.answer import Answer, DeletedPrompt
    from smart_fork.finding.hit import Hit


#: The indentation of lines below a result, and the columns that such a line cannot use.
INDENT, _MARGIN = "    ", 7
#: The most results with a quotation; lines of a quotation; its characters; commits that a result names one by one.
_QUOTED, _LINES, _CHARACTERS, _COMMITS = 3, 2, 300, 3
#: A result with a lower score is only counted. Facts are left out until a headline has so many cells.
_SHOWN, _HEADLINE = 0.01, 20
#: How a session's work ended, in at most nine characters; empty if that is not known.
OUTCOMES = {"tests_passed": "tests ok", "unknown": ""}
#: The columns that are aligned to the left: agent and session id, and how the work ended.
_LEFT = (3, 5)


def print_found(answer: Answer, min_score: float | None = None) -> None:
    """Print an answer of ``find``: results, notices, and the next commands.

    `min_score` is the lowest score that the person asked for; a notice names it if nothing was found.
    """
    if isinstance(answer, Unsearched):
        steps = (f"  {number}. {step}" for number, step in enumerate(answer.next_steps, start=1))
        for line in filter(None, (answer.message, *steps, answer.team_error)):
            say(line)
        _print_fallback(answer)
        return
    print_hits(answer.results, known=_is_reliable(answer))
    _print_fallback(answer)
    print_deleted_prompts(answer.gone_prompts)
    for sentence in filter(None, _notices(answer, min_score)):
        say(sentence)
    say_passed_over(answer.passed_over)
    for step in _next_steps(answer):
        say(step)


def _is_reliable(answer: Found) -> bool:
    """Return True if a low score means a bad match: nothing is left to index, and the question's language fits."""
    return not (answer.unread_notice or answer.early_notice or answer.language_notice)


def _next_steps(answer: Found) -> Iterator[str]:
    """Yield the next commands to type: fork or read the best result, or what to do if no result fits."""
    least = FIT_THRESHOLD if answer.engine == "builtin" and answer.code is None else 0.0
    fitting = [hit for hit in answer.results if hit.score >= least]
    best = next((hit for hit in fitting if not hit.warning), None)
    best = best or next((hit for hit in fitting[:1] if not AGENTS[hit.agent_type].has("starter")), None)
    if best is not None:
        name, sure = short(best.session_id), bool(least and _is_reliable(answer))
        yield from (f"{percent(best.score)} sure that it is result {best.rank}.",) * sure
        fork = f'{best.suggested_fork(name)} "PROMPT"'
        yield _with_comment(f"Next: {fork}", f"continue in a copy: {tokens_about(best.price.tokens)} tokens")
        yield from (f"      {best.fork_note}",) * bool(best.fork_note)
        yield _with_comment(f"      {f'smart-fork show {name}':{len(fork)}}", "read it first")
    elif fitting:
        yield f"Next: smart-fork show {short(fitting[0].session_id)} reads the best one, which cannot be forked"
    elif (answer.unread_notice or answer.early_notice) and not (answer.code and not answer.results):
        yield from () if answer.background_notice else ("Next: smart-fork index run, then ask again",)
    elif answer.results and (answer.language_notice or unnamed(answer.query) or not answer.index.complete):
        yield f"Next: smart-fork show {short(answer.results[0].session_id)} reads the best so far"
    elif answer.results:
        yield 'Next: smart-fork new "PROMPT": start a new session, no past one fits'
        yield from ("      or search everywhere: --all-projects",) if answer.project_path is not None else ()


def _with_comment(command: str, note: str) -> str:
    """Return the shell `command` with `note` as a comment, if the line fits the terminal."""
    noted = f"{command}  # {note}"
    return noted if not out.width or len(noted) <= out.width else command.rstrip()


def print_hits(hits: Sequence[Hit], *, known: bool = True) -> None:
    """Print search results: a line each, quotations of the first ones, and why some cannot be forked.

    With `known` (low scores mean bad matches), print scores, and only count very unlikely results.
    """
    if not hits:
        return
    shown = [hit for hit in hits if not known or hit is hits[0] or hit.explain or hit.wrote or hit.score >= _SHOWN]
    table = [_columns(hit, known=known) for hit in shown]
    for number, (hit, line) in enumerate(zip(shown, _lines(table, shown, known=known), strict=True)):
        out.row(line)
        for below in _below(hit, table[number][2], quoting=number < _QUOTED):
            out.row(below)
        for explained in _explained(hit):
            out.print(plain(explained, "magenta"))
    if folded := len(hits) - len(shown):
        out.row(plain(f"{folded} more, unlikely: --explain prints {'it' if folded == 1 else 'them'}", "dim"))
    for warning in dict.fromkeys(hit.warning for hit in shown if hit.warning):
        ranks = ", ".join(str(hit.rank) for hit in shown if hit.warning == warning)
        for part in wrapped(f"Cannot be forked ({ranks}): {warning}", 0):
            out.print(plain(part, "yellow"))
    if sys.stdout.isatty() or sys.stderr.isatty():
        from smart_fork.cli.listed_sessions import remember

        remember(shown)


def _columns(hit: Hit, *, known: bool) -> tuple[str, ...]:
    """Return a result's columns: rank, score (if scores are `known` to be reliable), headline, and facts about it."""
    return (
        str(hit.rank),
        percent(hit.score) if known or hit.wrote else "",
        one_line(printable(hit.headline or hit.session_id)),
        f"{hit.agent_type} {short(hit.session_id)}",
        age(hit.last_activity),
        OUTCOMES.get(hit.outcome, hit.outcome),
        tokens_about(hit.price.tokens),
    )


def _lines(table: Sequence[tuple[str, ...]], hits: Sequence[Hit], *, known: bool) -> Iterator[Plain]:
    """Yield each result's line, from its columns in `table`, fitted to the terminal: narrow ones omit the last facts.

    If scores are `known` to be reliable, likely results are bold.
    """
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    facts = [number for number in range(3, len(widths)) if widths[number]]
    led = [one for one in (0, 1) if widths[one]]
    while (room := out.width - sum(widths[one] + 2 for one in (*led, *facts))) < _HEADLINE and facts[1:] and out.width:
        facts.pop()
    for columns, hit in zip(table, hits, strict=True):
        likely = known and hit.score >= FIT_THRESHOLD
        padded = [f"{columns[one]:{'<' if one in _LEFT else '>'}{widths[one]}}" for one in facts]
        rest = padded if out.width else [columns[one] for one in facts if columns[one]]
        yield (
            plain("".join(f"{columns[one]:>{widths[one]}}  " for one in led), "bold green" if likely else "dim")
            + plain(headline := cut_to(columns[2], room) if out.width else columns[2], "bold" if likely else "dim")
            + plain(_file_names(headline, hit.edited_files, room), "dim")
            + plain("  " + "  ".join(rest), "cyan" if likely else "dim")
        )


def _file_names(headline: str, files: Sequence[str], room: int) -> str:
    """Return the names of the first `files` that fit beside `headline`, padded so that both take `room` columns."""
    names = [PurePath(name).name for name in files]
    if not out.width:
        return f"  {', '.join(names)}" if names else ""
    from rich.cells import cell_len

    left = max(0, room - cell_len(headline))
    fitting = (f"  {', '.join(names[:number])}" for number in range(len(names), 0, -1))
    said = next((one for one in fitting if cell_len(one) <= left), "")
    return said + " " * (left - cell_len(said))


def _below(hit: Hit, headline: str, *, quoting: bool) -> Iterator[Plain]:
    """Yield the lines below a result: its notes, the code lines that it wrote, and if `quoting`, a quotation."""
    marks = [
        *filter(None, [place_mark(hit.project_inferred_from, hit.began_in)]),
        *(hit.noted.marks if hit.noted else ()),
        *([f"shared by {hit.author}"] if hit.author else []),
        *([f"shared by {hit.origin.owner}"] if hit.origin else ["shared"] if hit.also_remote else []),
    ]
    for line in (" · ".join(marks), *(hit.noted.sentences if hit.noted else ())):
        if line:
            yield plain(f"{INDENT}{line}", "yellow")
    if wrote := hit.wrote:
        what = f"wrote {wrote.lines} of {wrote.of} lines, most of them in exchange {wrote.exchange}"
        where = f", commit {', '.join(one[:8] for one in wrote.commits[:_COMMITS])}" if wrote.commits else ""
        yield plain(f"{INDENT}{what}{where}", "magenta")
    said = quoted(wrote.asked if wrote else hit.snippet or "", _CHARACTERS)
    for line in wrapped(said, _MARGIN, _LINES) if quoting and said and said != headline else ():
        yield plain(f"{INDENT}│ {line}", "dim")


def _explained(hit: Hit) -> Iterator[str]:
    """Yield lines that explain a result's score (with ``--explain``), and its full id (also with ``--verbose``)."""
    why, family, at_match = hit.explain, hit.lineage.family_size, hit.price.tokens_at_match
    if why:
        cached = cache_in_words(hit.price.cached_until)
        facts = [
            minute(hit.last_activity),
            *hit.became_of,
            f"{hit.price.tokens:,} tokens{f' ({cached})' if cached else ''}",
            *([f"{at_match:,} up to the match"] if hit.suggested_at is not None and at_match else []),
            *([f"about {hit.within_budget:,} within a budget of {budget}"] if (budget := hit.suggested_budget) else []),
            *([f"alone it {hit.resumed.sentence}"] if hit.resumed else []),
            *([f"{family} in its family"] if family > 1 else []),
            *([f"branch {hit.git_branch}"] if hit.git_branch else []),
            *([f"edited {', '.join(hit.edited_files)}"] if hit.edited_files else []),
        ]
        yield from (f"{INDENT}{line}" for line in wrapped(" · ".join(facts), _MARGIN))
        reranked = f"; the reranker makes it {why.reranked:.2f}" if why.reranked is not None else ""
        told = f"{_given(why.points)} for it, {why.against:.1f} against it: {why.score:.2f}{reranked}"
        yield from (f"{INDENT}{line}" for line in wrapped(told, _MARGIN))
        for one in why.phrasings:
            yield f"{INDENT}  {_given(one.points)} of it from: {quoted(one.text, 120)}"
        if cache := why.cache:
            used = f"{in_words(passed)} ago" if (passed := age_of(cache.last_request)) is not None else "unknown"
            yield f"{INDENT}Its log says that the cache lives {in_words(cache.seconds)}; last request: {used}"
    if why or logging.getLogger("smart_fork").isEnabledFor(logging.INFO):
        yield INDENT + "  ".join(filter(None, (hit.session_id, hit.passage_place)))


def _given(points: Mapping[str, float]) -> str:
    return " + ".join(f"{value:.1f} {part.replace('_', ' ')}" for part, value in points.items() if value) or "nothing"


def print_deleted_prompts(prompts: Sequence[DeletedPrompt]) -> None:
    """Print the prompts of deleted sessions, which cannot be forked."""
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
        out.row(f"    {one.session_id}  {one.agent_type}  {one.headline or one.title}")


def _notices(answer: Found, min_score: float | None = None) -> Iterator[str]:
    """Yield sentences about what the answer may lack, and why. Some are empty."""
    state, early = answer.index, answer.code or answer.unread_notice or answer.early_notice
    if (code := answer.code) and code.unknown:
        all_of_them = "this" if code.unknown == code.lines else f"{code.unknown} of {code.lines} lines"
        yield f"No session is known to have written {all_of_them}."
    if not answer.results and code is None:
        found = f"scores {min_score:g} or more" if min_score else "found"
        elsewhere = "" if answer.project_path is None else " --all-projects looks everywhere."
        yield f"Nothing {found} in {state.sessions} sessions.{elsewhere}"
    elif not early and (best := max(hit.score for hit in answer.results)) < LIKELY_SCORE and answer.engine == "builtin":
        none = "None of these is a sure match. " if best < FIT_THRESHOLD and _is_reliable(answer) else ""
        sure = unnamed(answer.query) or none
        yield f"{sure}Add other phrasings: --also TEXT, once for each." if not answer.also else sure.strip()
    yield f"Searched by {answer.search_mode} only: {answer.search_error}" if answer.search_error else ""
    yield answer.project_notice
    yield answer.order_notice if any(hit.explain for hit in answer.results) else ""
    yield answer.language_notice
    yield answer.team_error
    yield from answer.unread
    yield f"Not reranked: {answer.rerank_error}" if answer.rerank_error else ""
    if state.problem:
        yield f"{'Newer' if state.sessions else 'Your own'} sessions were not searched. {state.problem}"
    elif not state.complete and (answer.query or state.unread_logs):
        yield _index_progress(answer)


def _index_progress(answer: Found) -> str:
    state = answer.index
    read = state.sessions / (state.sessions + (state.unread_logs or 0) or 1)
    done = f"{math.floor(100 * read * state.covered.all_passages)} %"
    if not answer.background_notice:
        return f"Indexed so far: {done}. `smart-fork index run` completes it."
    if not state.seconds_left:
        return f"Still indexing: {done}. Ask again in a few minutes."
    return f"Still indexing: {done}, about {in_words(state.seconds_left)} left. Ask again then."


def age(moment: str) -> str:
    """Return the time since `moment` in words, such as "3 days"; empty if `moment` is no time."""
    return in_words(passed) if (passed := age_of(moment)) is not None else ""
