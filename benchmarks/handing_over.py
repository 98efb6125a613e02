"""What another agent is told of a session, beside what a person would paste for it: tokens, and what each keeps.

    python benchmarks/handing_over.py CORPUS [--home DIR] [--sessions 10] [--seed 1] [--json FILE]

CORPUS is a folder of real sessions as ``benchmarks/retrieval.py`` takes it, DIR keeps our own state. Of so many
sessions, half of each of the two agents that have most, it is counted how many of the prompts, the answers, the actions
and the outcomes of actions (their first line) are in what is told, in the conversation as text (``smart-fork show``)
and in the log file itself. Tokens are characters / 4, of all in the same way; nothing of a session is printed.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from retrieval import home_of
from rich.console import Console
from rich.table import Table

from indexer.transcripts.model import Session, estimate_tokens
from smart_fork.agents.readers import READERS
from smart_fork.finding import sessions
from smart_fork.forking.handover import handover
from smart_fork.forking.neutral_form import OUTPUT_CHARACTERS, read

#: Sessions shorter than this are no work; what is larger than so many bytes is not pasted by anybody.
LEAST_TURNS, MOST_BYTES = 40, 8 << 20
#: Of an outcome, so much of its first line is looked for.
OUTCOME_CHARACTERS = 60
KINDS = ("prompts", "answers", "actions", "outcomes")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--home", type=Path, help="where our own state is kept")
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    asked = parser.parse_args()
    with home_of(asked.corpus, asked.home):
        rows = [measured(session) for session in chosen(asked.sessions, random.Random(asked.seed))]
    show(rows)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=2) + "\n")


def chosen(count: int, chance: random.Random) -> Iterator[Session]:
    """Sessions of the two agents that have most, by turns."""
    logs = {reader.name: [log for log in reader.discover() if log.size < MOST_BYTES] for reader in READERS}
    most = sorted(logs, key=lambda name: len(logs[name]), reverse=True)[:2]
    for place, name in enumerate(most):
        left = count // 2 + (place < count % 2)
        for log in chance.sample(sorted(logs[name], key=lambda one: str(one.path)), len(logs[name])):
            session = READERS[name].read(log.path).session if left else None
            if session and len(session.turns) >= LEAST_TURNS and any(turn.prompt for turn in session.turns):
                left -= 1
                yield session


def measured(session: Session) -> dict[str, Any]:
    """The figures of one session."""
    neutral = read(session)
    facts = {
        "prompts": [one.text for one in neutral.messages if one.role == "user"],
        "answers": [one.text for one in neutral.messages if one.role == "assistant" and one.text],
        "actions": [" ".join(action.line.split()) for one in neutral.messages for action in one.actions],
        "outcomes": [
            first[:OUTCOME_CHARACTERS]
            for one in neutral.messages
            for action in one.actions
            if (first := action.outcome[:OUTPUT_CHARACTERS].split("\n")[0].strip())
        ],
    }
    other = next(name for name in ("codex", "claude") if name != session.agent)
    told = handover(session, len(session.turns) - 1, other)
    conversation = sessions.told(session, sessions.Reading(None, 0, 0))
    texts = {
        "told": "\n".join(one.text for one in told.said),
        "conversation": "\n".join(f"{one.role}: {one.text}" for one in conversation.messages),
        "log": session.source_path.read_text("utf-8", "replace"),
    }
    return {
        "agent": session.agent,
        "turns": len(session.turns),
        "whole": session.token_estimate,
        "earlier": told.handed.earlier,
        "lost": dict(told.handed.lost),
        "facts": {kind: len(facts[kind]) for kind in KINDS},
        "ways": {way: {"tokens": estimate_tokens(text), **kept(text, facts, way)} for way, text in texts.items()},
    }


def kept(text: str, facts: dict[str, list[str]], way: str) -> dict[str, int]:
    """How many of each kind are in a text; in a log they stand as JSON spells them, and actions in their own form."""
    spelled: Callable[[str], str] = (lambda one: json.dumps(one, ensure_ascii=False)[1:-1]) if way == "log" else str
    return {
        kind: sum(spelled(one) in text for one in facts[kind]) for kind in KINDS if (way, kind) != ("log", "actions")
    }


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print a table: one line a session and way, then all."""
    table = Table("session", "turns", "way", "tokens", *KINDS)
    for number, row in enumerate(rows, 1):
        for way, figures in row["ways"].items():
            shares = [f"{figures[kind]}/{row['facts'][kind]}" if kind in figures else "-" for kind in KINDS]
            table.add_row(f"{number} {row['agent']}", str(row["turns"]), way, f"{figures['tokens']:,}", *shares)
    for way in rows[0]["ways"] if rows else ():
        of = [row["ways"][way] for row in rows]
        shares = [
            f"{sum(one[kind] for one in of) / max(1, sum(row['facts'][kind] for row in rows)):.1%}"
            if kind in of[0]
            else "-"
            for kind in KINDS
        ]
        table.add_row("all", "", way, f"{sum(one['tokens'] for one in of):,}", *shares, style="bold")
    console = Console(width=120)
    console.print(table)
    lost: dict[str, int] = {}
    for row in rows:
        for what, number in row["lost"].items():
            lost[what] = lost.get(what, 0) + number
    console.print(f"not told: {', '.join(f'{what} ({number:,})' for what, number in sorted(lost.items()))}")


if __name__ == "__main__":
    main()
