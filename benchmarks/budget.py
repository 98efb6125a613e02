"""What a fork within a budget keeps of a session, and what it takes: by labels made by reading, and at random.

    python benchmarks/budget.py CORPUS [LABELS] [--home DIR] [--budget 30k] [--also FILE] [--misses]
        [--json FILE]
    python benchmarks/budget.py CORPUS --random N [--seed N] [--json FILE]

CORPUS and ``--home`` as for ``retrieval.py``. LABELS is a file with one JSON object a line:

    {"id": "q1", "exchanges": [3]}

``id`` is that of a query of the corpus, ``exchanges`` the numbers of those that answer it in the first session of its
``gold`` (from 0; one begins with each prompt). ``agent`` and ``session_id`` name another session, ``query`` is the
question where it is none of the corpus. Without LABELS it is ``exchanges.jsonl`` beside this; the labels in
``exchanges-held-out.jsonl`` are about other sessions. For a budget and for ``match`` it prints in how many
of these sessions all of them are kept: at all (what was asked and answered), with all their edits and what these need,
with every call and its result (long ones shortened), and in full; and the share of the session's tokens; all by its
length. Beside each stands the bound, what the best choice could do that knows the answer: in how many sessions these
exchanges, with what was asked first and what was said last, take no more than the budget, and the median of the share
that they take. ``--misses`` prints each question of which an exchange, or an edit, is not kept; with ``--also`` each
question is asked in other words as well.

With ``--random N``, which needs no labels and no index, so many budgets are tried on sessions of the corpus with
evidence by chance: what is written is read
by its agent's reader, calls and results, links and texts are looked at, and its tokens are counted.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from retrieval import home_of, labels_of, of_queries, opened
from rich.console import Console
from rich.table import Table

DEVELOPMENT = Path(__file__).with_name("exchanges.jsonl")
#: The lengths of sessions, in tokens, by which the table is divided.
LENGTHS = (0, 30_000, 60_000, 120_000)


class Kept(NamedTuple):
    """What is kept of the exchanges that answer a query (`id`), as much of each as in `LEVELS`; in how many of the
    session's tokens (`whole`).

    `least` is what each takes at the least, and `most` what it may take.
    """

    id: str
    kept: tuple[bool, ...]
    least: tuple[int, ...]
    most: int
    tokens: int
    whole: int


#: How much of an exchange is kept.
LEVELS = ("at all", "all edits", "every call", "in full")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("labels", type=Path, nargs="?")
    parser.add_argument("--home", type=Path, help="keep the index here (SMART_FORK_HOME)")
    parser.add_argument("--budget", default="30k")
    parser.add_argument("--random", type=int, default=0, help="how many budgets to try at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--also", type=Path, help="further phrasings of the queries")
    parser.add_argument("--misses", action="store_true", help="print each question of which something is not kept")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    told: dict[str, list[Kept]] = {}
    with home_of(arguments.corpus, arguments.home) as laid_out:
        if arguments.labels or not arguments.random:
            labels = labels_of(arguments.labels or DEVELOPMENT)
            queries = opened(laid_out, arguments.also).queries
            also = {query["id"]: query["also"] for query in queries}
            labels = [one | {"also": also.get(one["id"], ())} for one in of_queries(labels, queries)]
            told = {budget: list(kept(labels, budget)) for budget in (arguments.budget, "match")}
        tried = Counter(outcomes(arguments.random, arguments.seed)) if arguments.random else Counter[str]()
    figures = {budget: table(rows, budget) for budget, rows in told.items()} | {"random": dict(tried)}
    show(figures)
    if arguments.misses:
        show_misses(told)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def kept(labels: Sequence[dict[str, Any]], budget: str) -> Iterator[Kept]:
    """What is kept of each labelled session."""
    from indexer.embedding import configured_embedder
    from smart_fork.agents.readers import READERS
    from smart_fork.finding.library import Library
    from smart_fork.finding.upkeep import Engine

    engine = Engine(configured_embedder())
    for label in labels:
        reader = READERS[label["agent"]]
        logs = [Path(label["path"])] if label.get("path") else reader.locate(label["session_id"])
        session = next((reader.read(log).session for log in logs), None)
        if session is None:
            sys.exit(f"label {label['id']}: this corpus has no session {label['session_id']}")
        with Library.open(None, engine) as library:
            evidence = library.evidence(session, label["query"], label["also"])
        yield kept_of(session, evidence, label, budget)


def kept_of(session: Any, evidence: Any, label: dict[str, Any], budget: str) -> Kept:
    """What a budget keeps of these exchanges, and what could be kept of them."""
    from smart_fork.forking.budget_choice import LEAST_SHARE, LEAST_TOKENS, Chooser, Gains, KeptTurns, selected
    from smart_fork.forking.exchange_parts import costs, units
    from smart_fork.forking.request import Wanted, amount

    end, counted = len(session.turns) - 1, costs(session)
    found = selected(session, end, Wanted(amount(budget)), evidence)
    parts, whole = units(session, counted, end), found.selection.whole_tokens
    knowing = Chooser(parts, counted, end, session, Gains({parts[-1].number: 1.0}))
    needs, begun = knowing.needs, knowing.smallest().kept
    places = {max((n for n, unit in enumerate(parts) if unit.number <= one), default=0) for one in label["exchanges"]}
    everything = frozenset(turn for unit in parts for turn in unit.whole)
    of_it = found.excerpt.kept if found.excerpt else everything
    cut = {
        turn for turn in (found.excerpt.shortened if found.excerpt else ()) if counted.short[turn] < counted.turns[turn]
    }
    own = frozenset().union(*(parts[place].whole for place in places))
    words = frozenset().union(*(parts[place].words for place in places))
    said, done, calls = (
        frozenset().union(*(some(place) for place in places)) for some in (needs.said, needs.done, needs.whole)
    )
    best = [KeptTurns(begun | said), KeptTurns(begun | done), KeptTurns(begun | calls), KeptTurns(begun | calls, own)]
    return Kept(
        id=label["id"],
        kept=(words <= of_it, done <= of_it, calls <= of_it, calls <= of_it and not cut & own),
        least=tuple(min(whole, knowing.tokens(choice)) for choice in best),
        most=max(LEAST_TOKENS, int(LEAST_SHARE * whole)) if budget == "match" else int(amount(budget)),
        tokens=found.selection.tokens,
        whole=whole,
    )


def table(rows: Sequence[Kept], budget: str) -> dict[str, Any]:
    """The share of sessions whose exchanges are kept, the median share of the tokens, and what could be: of all, of
    those that are longer than the budget, and by length.
    """
    from smart_fork.forking.request import MATCH, amount

    longer = [] if budget == MATCH else [(int(amount(budget)) + 1, None)]
    figures: dict[str, Any] = {}
    for low, high in [(0, None), *longer, *zip(LENGTHS, (*LENGTHS[1:], None), strict=True)]:
        some = [row for row in rows if low <= row.whole and (high is None or row.whole < high)]
        if not some:
            continue
        length = f"{low:,} to {high:,} tokens" if high else f"{low:,} tokens and more" if low else "all"
        figures[length] = {"sessions": len(some), "share": _median(row.tokens / row.whole for row in some)}
        for number, level in enumerate(LEVELS):
            figures[length] |= {
                level: round(statistics.mean(row.kept[number] for row in some), 3),
                f"{level}: bound": round(statistics.mean(row.least[number] <= row.most for row in some), 3),
                f"{level}: its share": _median(row.least[number] / row.whole for row in some),
            }
    return figures


def _median(shares: Iterable[float]) -> float:
    return round(statistics.median(shares), 3)


def outcomes(count: int, seed: int) -> Iterator[str]:
    """What became of so many budgets at random: a word for each. Each log is read once."""
    from smart_fork.agents.readers import READERS

    chance = random.Random(seed)
    logs = [(agent, file.path) for agent in ("claude", "codex") for file in READERS[agent].discover()]
    drawn: dict[tuple[str, Path], list[float]] = {}
    for _ in range(count):
        drawn.setdefault(chance.choice(logs), []).append(chance.random())
    with tempfile.TemporaryDirectory() as folder:
        for (agent, path), own in drawn.items():
            session = READERS[agent].read(path).session
            yield from (_tried(agent, path, session, random.Random(one), Path(folder)) for one in own)


def _tried(agent: str, path: Path, session: Any, chance: random.Random, folder: Path) -> str:
    from smart_fork.agents import AGENTS
    from smart_fork.agents.copier import NewSession
    from smart_fork.errors import SmartForkError
    from smart_fork.finding.ranking import ExchangeEvidence, PointParts
    from smart_fork.forking.budget_choice import selected
    from smart_fork.forking.request import Wanted

    points = session.branch_points() if session else ()
    if session is None or not points:
        return "nothing finished"
    exchanges = session.exchanges()
    parts = {one.index: PointParts(chance.random(), chance.random(), 0.0, 0.0, 0.0) for one in exchanges}
    evidence = ExchangeEvidence(parts, chance.randrange(len(exchanges))) if chance.random() < 0.8 else None
    end = chance.choice(points) if chance.random() < 0.3 else points[-1]
    budget = int(10 ** chance.uniform(2, 5))
    try:
        found = selected(session, end, Wanted(budget), evidence)
        if found.excerpt is None:
            return "whole"
        new = NewSession(AGENTS.starter_of(agent).new_id(), folder, datetime.now())  # noqa: DTZ005 - as files are named
        made = folder / AGENTS.copier_of(agent).place(path, new).name
        made.write_bytes(
            b"".join(line + b"\n" for line in AGENTS.copier_of(agent).distilled(session, found.excerpt, new))
        )
    except SmartForkError as error:
        return f"refused: {error.message[:60]}"
    wrong = _wrong(agent, session, found, made, budget)
    made.unlink()
    return wrong or ("sound, the smallest" if found.selection.smallest else "sound, within the budget")


def _wrong(agent: str, session: Any, found: Any, made: Path, budget: int) -> str:
    """What is not as it should be; empty where all is."""
    from smart_fork.agents import AGENTS
    from smart_fork.agents.readers import READERS
    from smart_fork.excise.cut_plan import broken_links, dangling, unanswered
    from smart_fork.excise.transcript import load_with_tool
    from smart_fork.forking.exchange_parts import costs

    back, cut = READERS[agent].read(made).session, load_with_tool(agent, made)
    turns = [turn for number, turn in enumerate(session.turns) if number in found.excerpt.kept]
    wanted, got = ([turn.text for turn in some if turn.text and turn.speaks] for some in (turns, back.turns))
    counted = sum(one.characters for one in AGENTS.copier_of(agent).live(back)) / costs(session).rate
    problems = {
        "not read": back is None,
        "calls without results": bool(unanswered(cut.turns)),
        "results without calls": bool(dangling(cut.turns)),
        "broken links": bool(broken_links(cut)),
        "other texts": wanted != got,
        "above the budget": found.selection.tokens > budget and not found.selection.smallest,
        "more than was said": counted > found.selection.tokens * 1.02 + 50,
    }
    return ", ".join(name for name, is_so in problems.items() if is_so)


def show(figures: dict[str, Any]) -> None:
    """The figures as tables."""
    console = Console(width=120)
    for name, told in figures.items():
        columns = told if name != "random" else {"budgets": told}
        printed = Table(title=name if name == "random" else f"budget {name}")
        for heading in ("", *columns):
            printed.add_column(heading, justify="right" if heading else "left")
        for what in next(iter(columns.values()), {}):
            printed.add_row(what, *(f"{values[what]:g}" for values in columns.values()))
        console.print(printed)


def show_misses(told: dict[str, list[Kept]]) -> None:
    """A line for each question of which an exchange that answers, or an edit of it, is not kept."""
    for budget, rows in told.items():
        for row in rows:
            if not row.kept[1]:
                what = "an edit or what it needs" if row.kept[0] else "what was asked and answered"
                least = f"{row.least[1]} at the least"
                print(f"{budget}: {row.id} lacks {what}; {row.tokens} of {row.whole} tokens, {least}")


if __name__ == "__main__":
    main()
