"""What the real programs send of forks within a budget: exactly what the selection says, and nothing that is refused.

    python benchmarks/budget_resume.py CORPUS [--count N] [--seed N]

CORPUS as for ``retrieval.py``. So many sessions of it, by turns of Claude Code and of Codex, are distilled with
evidence by chance and a budget between 2,000 and 30,000 tokens, and resumed by the real program (of the version that is
tested, brought from npm once) against a model on this machine, which refuses calls without results. It prints how many
were sent as they were chosen: every text, call and line on the rest, and nothing of what is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from retrieval import home_of
from rich.console import Console
from rich.table import Table

from smart_fork.agents import AGENTS
from smart_fork.agents.readers import READERS
from smart_fork.errors import SmartForkError
from smart_fork.finding.ranking import ExchangeEvidence, PointParts
from smart_fork.forking.budget_choice import selected
from smart_fork.forking.request import Wanted
from smart_fork.forking.session_copy import write_branch
from tests.e2e.agents import Machine, machine_in
from tests.e2e.programs import CLAUDE_AND_CODEX, cache_folder, install

NAMES = ("claude", "codex")
WORDS = {"claude": ("-p", "--resume"), "codex": ("exec", "resume")}
#: Of a text so much is compared: an agent may change what is around it.
COMPARED = 120


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance, told = random.Random(arguments.seed), Counter[str]()
    with (
        home_of(arguments.corpus, None),
        machine_in(cache_folder(), install(cache_folder(), CLAUDE_AND_CODEX)) as machine,
    ):
        logs = {agent: [file.path for file in READERS[agent].discover()] for agent in NAMES}
        with _at_home(machine):
            for number in range(arguments.count):
                agent = NAMES[number % len(NAMES)]
                outcome = next(
                    filter(None, (resumed(machine, agent, chance.choice(logs[agent]), chance) for _ in logs[agent]))
                )
                told[f"{agent}: {outcome}"] += 1
    printed = Table("", "sessions", title="resumed within a budget")
    for outcome, count in sorted(told.items()):
        printed.add_row(outcome, str(count))
    Console(width=120).print(printed)


@contextmanager
def _at_home(machine: Machine) -> Iterator[None]:
    """What is written goes where the machine's agents look for it."""
    before = os.environ["HOME"]
    os.environ["HOME"] = str(machine.home)
    try:
        yield
    finally:
        os.environ["HOME"] = before


def resumed(machine: Machine, agent: str, log: Path, chance: random.Random) -> str:
    """How one session is sent; nothing where it cannot be distilled."""
    session = READERS[agent].read(log).session
    exchanges = session.exchanges() if session else ()
    if session is None or not session.branch_points() or len(exchanges) < 3:
        return ""
    parts = {one.index: PointParts(chance.random(), chance.random(), 0.0, 0.0, 0.0) for one in exchanges}
    evidence = ExchangeEvidence(parts, chance.randrange(len(exchanges)))
    budget = int(10 ** chance.uniform(3.3, 4.5))
    new = AGENTS.starter_of(agent).new_id() or str(uuid4())
    try:
        found = selected(session, session.branch_points()[-1], Wanted(budget), evidence)
        if found.excerpt is None:
            return ""
        made = write_branch(
            READERS[agent], log, session=session, at=None, new_session_id=new, target_cwd=machine.project,
            now=datetime.now(), excerpt=found.excerpt,  # noqa: DTZ005 - as files are named
        )  # fmt: skip
    except SmartForkError:
        return ""
    if agent == "codex":
        _of_our_model(made.path)
    prompt, refused = f"Go on now {chance.randrange(10**9)}", len(machine.model.refused)
    try:
        machine.run(machine.programs / agent, *WORDS[agent], new, "--", prompt)
        sent = machine.model.wait_for(lambda request: request.last_prompt == prompt)
    except AssertionError as error:
        return f"not resumed: {str(error)[-80:]}"
    finally:
        made.undo()
    if len(machine.model.refused) > refused:
        return "refused by the model"
    return _differences(session, found, sent) or "as it was chosen"


def _of_our_model(log: Path) -> None:
    """Codex asks who has served a session before; here that is the machine's model."""
    head, rest = log.read_bytes().split(b"\n", 1)
    header = json.loads(head)
    header["payload"]["model_provider"] = "mock"
    log.write_bytes(json.dumps(header).encode() + b"\n" + rest)


def _differences(session: Any, found: Any, sent: Any) -> str:
    """What the model was sent otherwise than it was chosen."""
    excerpt, body = found.excerpt, json.dumps(sent.body, ensure_ascii=False)
    said = _flat("\n".join(message.text for message in sent.said))
    turns = list(enumerate(session.turns))
    kept = [turn for number, turn in turns if number in excerpt.kept]
    gone = [turn for number, turn in turns[: excerpt.end + 1] if number not in excerpt.kept]
    spoken = [turn for turn in kept if turn.text and (turn.prompt or turn.role == "assistant")]
    known = {_flat(turn.text)[:COMPARED] for turn in spoken}
    problems = {
        "texts are missing": any(_flat(turn.text)[:COMPARED] not in said for turn in spoken),
        "what is left out was sent": any(
            len(turn.text) > 2 * COMPARED and (text := _flat(turn.text)[:COMPARED]) not in known and text in said
            for turn in gone
            if turn.role == "assistant"
        ),
        "calls are missing": any(call.id not in body for turn in kept for call in turn.tool_calls),
        "lines are missing": body.count("<smart-fork-left-out>") < len(excerpt.told),
    }
    return ", ".join(name for name, is_so in problems.items() if is_so)


def _flat(text: str) -> str:
    return re.sub(r"\s+", "", text)


if __name__ == "__main__":
    main()
