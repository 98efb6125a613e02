"""An id that sessions of two agents have: whoever means one of them says which."""

from __future__ import annotations

import pytest

from smart_fork import public
from smart_fork.errors import Ambiguous, NotFound
from smart_fork.excise import erasure
from smart_fork.finding import session_lookup
from smart_fork.forking.resume import session_to_resume
from smart_fork.page import session_page as session
from smart_fork.workers.registry import Registry
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures

SHARED = "11111111-aaaa-4000-8000-000000000001"
EITHER = f"Say which: claude:{SHARED} or codex:{SHARED}"


@pytest.fixture
def two(world, shop):
    """Sessions of two agents with one id."""
    world.claude(shop, "the retry of the uploader", "Done by the first.", session_id=SHARED)
    world.codex(shop, "the colour of the button", "Done by the second.", session_id=SHARED)
    return world


COMMANDS = (
    "show {}", "export {} --markdown", "lineage {}", "fork {} go --dry-run", "fork {} go --at match --dry-run",
    "fork {} {} go --dry-run", "fork {} {} go --merge --budget 10k --dry-run", "branch {}", "resume {}",
    "excise list {}", "excise cut 1 {}", "forget {} --yes",
)  # fmt: skip


def test_no_command_takes_either_for_the_other(two, run):  # noqa: F811
    for words in COMMANDS:
        refused = run(*words.format(SHARED, SHARED).split())

        assert (refused.code, refused.out) == (2, ""), words
        assert "is the id of several sessions: one of Claude Code and one of Codex" in refused.err, words
        assert EITHER in refused.err, words


def test_who_says_whose_it_is_gets_that(two, run):  # noqa: F811
    assert "Done by the first." in run("show", f"claude:{SHARED}").out
    assert "Done by the second." in run("show", f"Codex:{SHARED[:13]}").out
    assert f" fork {SHARED[:9]}" in run("fork", f"codex:{SHARED}", "go", "--dry-run").out
    assert run("show", f"qwen:{SHARED}").code == 3
    assert "the second" in run("excise", "list", f"codex:{SHARED}").out


def test_one_whose_log_is_gone_may_still_be_meant(two, shop):
    two.find("retry", shop)
    two.log_of(SHARED).unlink()

    with pytest.raises(Ambiguous, match="of several sessions"):
        session_lookup.locate(SHARED)
    assert session_lookup.locate(f"claude:{SHARED}").agent == "claude"


def test_results_and_pages_know_whose_theirs_is(two, shop):
    found = {hit.agent_type: hit for hit in public.find("the colour of the button", project=str(shop), agent="all")}

    place = {"agent": "codex", "session_id": SHARED}
    assert session.located(place).agent == found["codex"].agent_type == "codex"
    assert "button" in session.conversation(place, {}).title
    with pytest.raises(NotFound):
        session.located(place | {"agent": "qwen"})


def test_a_worker_in_one_of_them_is_not_taken_for_the_other(two, shop, monkeypatch):
    with Registry() as registry:
        registry.add("codex", source_session_id=SHARED, session_id=SHARED, place="process", cwd=shop)
    monkeypatch.setattr("smart_fork.forking.resume.is_alive", lambda *_: True)

    with pytest.raises(Ambiguous):
        session_to_resume(SHARED)
    assert session_to_resume(f"claude:{SHARED}", force=True).agent == "claude"


def test_of_two_that_were_forgotten_one_is_taken_back_by_its_agent(two, run):  # noqa: F811
    for agent in ("claude", "codex"):
        assert erasure.forget(f"{agent}:{SHARED}").agent_type == agent

    assert EITHER in run("forget", SHARED, "--undo").err
    assert erasure.undo_forgetting(f"codex:{SHARED}").agent_type == "codex"
    assert erasure.undo_forgetting(SHARED).agent_type == "claude"
