"""A title that quotes a cut prompt is replaced: in the session, in its branches, and in copies without the prompt."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path

import pytest

from indexer.safe_files import state_home
from smart_fork.excise import Request, branch, cut
from smart_fork.finding import session_lookup
from smart_fork.forking.request import Budget
from smart_fork.forking.results import Branched
from smart_fork.workers.registry import Registry
from tests.smart_fork.commands import command_model  # noqa: F401 - a fixture
from tests.smart_fork.forks import branched
from tests.smart_fork.world import World
from tests.support.cases import thorough_except_first

pytestmark = pytest.mark.usefixtures("command_model")
STEPS = ("> the passphrase of the vault is swordfish", "noted", "> add retry", "it retries", "> and the docs", "done")


def registered(session_id: str, made: Branched) -> None:
    """Let the registry name a session's parent."""
    with Registry() as registry:
        worker = registry.add(
            made.agent_type, source_session_id=session_id, session_id=made.session_id, place="process", cwd=Path("/")
        )
        registry.set_state(worker.id, "ended")


def title(session_id: str) -> str:
    return session_lookup.read(session_lookup.locate(session_id)).title


@pytest.fixture(params=thorough_except_first(["claude", "codex"]))
def session(request, world: World, shop) -> str:
    return world.worked(request.param, shop, *STEPS)


@pytest.mark.parametrize("how", [{}, {"budget": Budget(9_000, drop=frozenset({1})), "intent": "add retry"}])
def test_a_branch_loses_the_title_that_quotes_a_prompt_which_is_cut_from_its_parent(session, world: World, how):
    made = branched(session, **how)
    assert made.title == "the passphrase of the vault is swordfish (Branch)"
    registered(session, made)

    outcome = cut(Request(session, "0-1"))

    assert [made.session_id] == [one["session_id"] for one in outcome["followed"]]
    assert "swordfish" not in Path(made.path).read_text()
    marked = {"claude": "Fork of ", "codex": ""}[made.agent_type]  # a copy for Codex does not say what it has copied
    assert f"{marked}add retry" == title(made.session_id)


def test_a_branch_keeps_a_title_that_quotes_a_prompt_which_stays(session, world: World):
    made = branched(session)
    registered(session, made)

    cut(Request(session, "2-3"))

    assert made.title == title(made.session_id)
    assert "add retry" not in Path(made.path).read_text()


def test_a_copy_without_its_first_prompt_is_named_after_one_that_it_has(session):
    made = branch(session, "0-1")

    assert "add retry (Branch)" == made.title
    assert "swordfish" not in Path(made.path).read_text()


def test_a_worktree_that_is_named_after_a_prompt_which_goes_is_named(session, world: World):
    agent = session_lookup.locate(session).agent
    with Registry() as registry:
        for name in ("swordfish-1", "update-docs-1"):
            worktree = world.home / "shop/.worktrees" / name
            registry.set_state(
                registry.add(
                    agent, source_session_id="", session_id=session, place="process", cwd=worktree, worktree=worktree,
                    branch=f"smart-fork/{name}",
                ).id,
                "ended",
            )  # fmt: skip

    remains = cut(Request(session, "0-3"))["remains"]

    assert [f"worktree {world.home}/shop/.worktrees/swordfish-1 and git branch"] == [
        one.partition(" smart-fork/")[0] for one in remains if "worktree" in one
    ]


def test_a_name_that_repeats_a_prompt_goes_with_it_and_another_stays(world: World, shop):
    named = {}
    for name in ("Vault", "The  passphrase of the vault is swordfish (Branch 3)"):
        session_id = world.claude(shop, *(one.removeprefix("> ") for one in STEPS))
        with world.log_of(session_id).open("a") as log:
            log.write(json.dumps({"type": "custom-title", "customTitle": name, "sessionId": session_id}) + "\n")

        cut(Request(session_id, "0-1"))

        named[name] = title(session_id)
        assert "swordfish" not in world.log_of(session_id).read_text()
    assert ["Vault", "add retry"] == list(named.values())


@pytest.mark.parametrize("agent", thorough_except_first(["claude", "codex"]))
def test_who_has_the_notes_of_a_cut_alone_cannot_try_its_words(world: World, shop, agent):
    session = world.worked(agent, shop, "> swordfish", "noted", "> add retry", "it retries")
    lines = [json.loads(line) for line in world.log_of(session).read_text().splitlines()]
    said = [b"swordfish", *(json.dumps(one.get("payload"), separators=(",", ":")).encode() for one in lines)]

    cut(Request(session, "0-1"))

    noted = (state_home() / "excise.jsonl").read_text()
    assert "title:" in noted
    assert not [one for one in said if blake2b(one, digest_size=16).hexdigest() in noted]
    assert 0o600 == (state_home() / "marks.key").stat().st_mode & 0o777
