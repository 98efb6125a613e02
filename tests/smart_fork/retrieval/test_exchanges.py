"""What speaks for each exchange of a session, whoever makes it: this process, or one beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from indexer.models import configured_embedder
from indexer.question_process import QuestionProcess
from smart_fork import sessions
from smart_fork.budget.wanted import wanted_of
from smart_fork.copies.session_copy import last_branch_point
from smart_fork.forking.spending import Spending, chosen
from smart_fork.retrieval.meaning import meaning_of
from smart_fork.retrieval.upkeep import Engine
from tests.smart_fork.world import World

SUBJECTS = ("upload", "invoice", "logo", "password", "queue", "translation")
LONG = [
    words
    for number in range(9)
    for words in (
        f"Why does the {SUBJECTS[number % 6]} fail in step {number}?",
        f"Since {number} it waits for the {SUBJECTS[number * 7 % 5]}. "
        + "It retries with backoff. " * (number % 4 * 5),
    )
]
ASKED = ("who may sign in when the password has expired", ("retry the upload with backoff", "queue"))


@pytest.fixture(params=["claude", "codex"])
def session(request, world: World, shop: Path) -> str:
    """A session of each agent, beside others, embedded by the packaged model: fewer passages than its frameworks are for."""
    world.model = configured_embedder()  # type: ignore[assignment]
    world.claude(shop, "paint the logo", "It is blue")
    write = world.claude if request.param == "claude" else world.codex
    found = write(shop, *LONG)
    world.find("retry", shop)
    return found


def selection_of(session: str, budget: str, beside: QuestionProcess | None) -> dict[str, Any]:
    engine, (intent, also) = Engine(configured_embedder()), ASKED
    read = sessions.read(sessions.locate(session))
    with meaning_of(intent, also, engine.embedder, beside) as meaning:
        spending = Spending(wanted_of(budget), intent, also, engine, meaning)  # type: ignore[arg-type]
        return chosen(read, last_branch_point(read), spending).selection.as_json()


def test_what_is_kept_is_the_same_where_another_process_has_compared(session, shop):
    budgets = ("match", "1k", "2k")
    before = set(psutil.Process().children())
    alone = [selection_of(session, budget, None) for budget in budgets]

    assert alone == [selection_of(session, budget, QuestionProcess()) for budget in budgets]
    assert len({str(one) for one in alone}) == 3, "it matters what is kept"

    assert before == set(psutil.Process().children())
    dead = QuestionProcess()
    dead.close()
    assert alone[0] == selection_of(session, "match", dead)

    done = subprocess.run(
        [
            sys.executable, "-X", "importtime", "-m", "smart_fork", "branch", session, "--budget=match", "--json",
            "--intent", ASKED[0], *(word for one in ASKED[1] for word in ("--also", one)),
        ],
        capture_output=True, text=True, check=True, cwd=shop,
    )  # fmt: skip
    assert json.loads(done.stdout)["selection"]["exchanges"] == alone[0]["exchanges"]
    assert set() == {"numpy", "onnxruntime"} & {line.split()[-1] for line in done.stderr.splitlines() if line}
