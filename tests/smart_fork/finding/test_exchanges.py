"""Tests that the evidence for each exchange is equal whether this process or the embedding process computes it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from indexer.default_embedder import configured_embedder
from smart_fork.finding import session_lookup
from smart_fork.finding.index_refresh import Engine
from smart_fork.forking.fork_content import IntentEvidence, chosen
from smart_fork.forking.fork_points import last_branch_point
from smart_fork.forking.request import Budget
from tests.smart_fork.searches import opened
from tests.smart_fork.world import World
from tests.support import forkserver
from tests.support.cases import thorough_except_first

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


@pytest.fixture(params=thorough_except_first(["claude", "codex"]))
def session(request, world: World, shop: Path) -> str:
    """Write a session of each agent beside others, embedded by the packaged model.

    They have fewer passages than it takes to load the model's frameworks.
    """
    world.model = configured_embedder()  # type: ignore[assignment]
    world.claude(shop, "paint the logo", "It is blue")
    write = world.claude if request.param == "claude" else world.codex
    found = write(shop, *LONG)
    world.find("retry", shop)
    return found


def selection_of(session: str, budget: str) -> dict[str, Any]:
    intent, also = ASKED
    read, wanted = session_lookup.read(session_lookup.locate(session)), Budget.parse(budget)
    with opened(Engine(configured_embedder())) as library:
        library.expect(intent, also)
        answers = IntentEvidence(intent, also, library)
        return chosen(read, last_branch_point(read), wanted, answers).selection.as_json()  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_command_keeps_what_the_library_keeps(session, shop):
    kept = [selection_of(session, budget) for budget in ("match", "1k", "2k")]
    assert len({str(one) for one in kept}) == 3, "it matters what is kept"

    words = ("branch", session, "--budget=match", "--json", "--intent", ASKED[0])
    also = (word for one in ASKED[1] for word in ("--also", one))
    done = forkserver.run(
        [sys.executable, "-m", "smart_fork", *words, *also], capture_output=True, text=True, check=True, cwd=shop
    )
    assert json.loads(done.stdout)["selection"]["exchanges"] == kept[0]["exchanges"]
