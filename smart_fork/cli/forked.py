"""A fork that was started, or would be, as a person sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smart_fork.cli.output import out, say, say_notes
from smart_fork.cli.short_ids import short

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from smart_fork.forking.results import Forked, ForkPrice, Selection, Way


def print_forked(forked: Forked, *, dry_run: bool) -> None:
    """One fork, for a person."""
    from smart_fork.agents import AGENTS

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
    """What a fork within a budget has: in figures, and where nothing is started yet, exchange by exchange.

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
    """What each way to fork loads, side by side, for a person."""
    from smart_fork.forking.plan import parts_in_words, way_in_words

    yield from parts_in_words(ways)
    yield "Tokens that each way to fork loads in all, with instructions and tools:"

    for one in ways:
        yield f"  {one.option or 'whole session':<22} {one.tokens:>10,} tokens  {way_in_words(one)}"


def price_in_words(price: ForkPrice) -> str:
    """What a fork loads, for a person."""
    from smart_fork.finding.worth import cache_in_words

    of = f" of {price.whole_tokens:,}" if price.tokens < price.whole_tokens else ""
    cached = cache_in_words(price.cached_until, price.cached_tokens)
    return ", ".join(filter(None, (f"It loads about {price.tokens:,}{of} tokens", cached)))
