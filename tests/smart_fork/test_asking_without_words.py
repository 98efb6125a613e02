"""Tests of questions without an intent: the author of code, the fix of an error, and sessions with a tag."""

from __future__ import annotations

import json
import sys

import pytest

import smart_fork
from smart_fork.agents.request_fields import Options
from smart_fork.errors import Usage
from smart_fork.finding import session_notes
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from tests.smart_fork.commands import command_model, run
from tests.smart_fork.finding.test_authorship import BODY, commit
from tests.smart_fork.mcp_client import answer, refusal
from tests.smart_fork.searches import find
from tests.smart_fork.world import Did, World

pytestmark = pytest.mark.slow

__all__ = ["command_model", "run"]

FILE = "upload.py"
PATCH = f"diff --git a/{FILE} b/{FILE}\n--- a/{FILE}\n+++ b/{FILE}\n@@ -2 +2 @@\n-    for attempt in range(retries):\n+    for attempt in range(9):\n"
ERROR = "ModuleNotFoundError: No module named 'zeppelin_uploader'"
CODE = {
    "lines": [f"{FILE}:4"],
    "files": [FILE],
    "commit": "HEAD",
    "changes": PATCH,
    "changes, mine": True,
}
#: An intent that says nothing: left out, empty, blank, and what looks blank.
NOTHING = [{}, {"intent": ""}, {"intent": " \n"}, {"intent": "\u200b"}, {"intent": None}]


@pytest.fixture
def wrote(world: World, shop, monkeypatch) -> str:
    """Make a session with a tag that wrote a file, met an error and fixed it. The file changes afterwards."""
    monkeypatch.chdir(shop)
    path = shop / FILE
    session_id = world.worked(
        "claude", shop, "> retry the upload", Did("Write", {"file_path": str(path), "content": BODY}),
        Did("Bash", {"command": "python app.py"}, f"Traceback\n{ERROR}", failed=True),
        Did("Bash", {"command": "pip install zeppelin"}), Did("Bash", {"command": "python app.py"}, "done"), "It retries.",
    )  # fmt: skip
    commit(shop, FILE, BODY)
    path.write_text(BODY.replace("range(retries)", "range(6)"))
    world.claude(shop, "paint the logo", "painted")
    assert answer(world, intent="retry the upload")["count"]
    session_notes.mark("claude", session_id, ["later"])
    return session_id


def asked(name: str) -> dict:
    return {name.partition(",")[0]: CODE[name]}


@pytest.mark.parametrize("tool", ["smart_fork", "find_sessions"])
@pytest.mark.parametrize("name", CODE)
def test_who_wrote_code_is_asked_without_an_intent(world, wrote, tool, name):
    told = [answer(world, tool, **nothing, **asked(name)) for nothing in NOTHING]

    assert [[wrote]] * len(NOTHING) == [[hit["session_id"] for hit in one["results"]] for one in told]
    assert {"lines"} == {one["search_mode"] for one in told}
    assert {""} == {one.get("next", "") for one in told}
    assert [] == answer(world, "find_sessions", **asked(name), tag="none-has-it")["results"]


def test_what_ended_an_error_is_asked_without_an_intent(world, wrote):
    for nothing in NOTHING:
        (ended,) = answer(world, "find_sessions", **nothing, error=ERROR)["fixes"]
        assert (wrote, ["run pip install zeppelin"]) == (ended["session_id"], ended["ended_by"])


def test_the_sessions_with_a_tag_are_asked_for_without_an_intent_newest_first(world, shop, wrote, run):
    newer, elsewhere = world.codex(shop, "draw the header", "drawn"), world.claude(world.repository("bank"), "a", "b")
    answer(world, "find_sessions", intent="draw", agent_type="all")
    answer(world, "find_sessions", intent="a", project_path=str(world.home / "bank"))
    session_notes.mark("codex", newer, ["later"])
    session_notes.mark("claude", elsewhere, ["later"])

    found = [answer(world, "find_sessions", **nothing, tag="LATER", agent_type="all") for nothing in NOTHING]
    typed = json.loads(run("find", "--tag", "later", "--json").out)

    for one in (*found, typed):
        assert [newer, wrote] == [hit["session_id"] for hit in one["results"]]
        assert "fallback_sessions" not in one
    assert [newer] == [
        hit["session_id"] for hit in answer(world, "find_sessions", tag="later", agent_type="all", limit=1)["results"]
    ]
    assert [] == answer(world, "find_sessions", tag="none-has-it")["results"]
    assert [wrote] == [
        hit["session_id"] for hit in answer(world, "find_sessions", tag="later", intent="upload")["results"]
    ]


def test_where_nothing_is_asked_an_intent_is_required_wherever_it_is_asked(world, shop, run, monkeypatch):
    """F-002."""
    monkeypatch.chdir(shop)
    for nothing in (*NOTHING, {"also": ["x"]}, {"lines": []}, {"lines": [""]}, {"files": [" "]}, {"changes": False}):
        for tool in ("smart_fork", "find_sessions"):
            assert refusal(world, tool, **nothing).startswith("intent ")
        assert refusal(world, **nothing, auto_fork=True).startswith("intent ")
        assert refusal(world, "find_sessions", **nothing, session="self").startswith("intent ")
    for blank in ("", " ", "\u200b", None, 5, ["x"]):
        with pytest.raises(Usage, match=r"^intent "):
            FindRequest(blank).checked()
        with pytest.raises(Usage, match=r"^intent "):
            smart_fork.find(blank)
    for wrong in (None, 5):
        with pytest.raises(Usage, match=r"^intent "):
            FindRequest(wrong, tag="later").checked()
    assert "intent " in run("find").err
    assert "INTENT is empty" in run("find", "\u200b").err
    assert not (world.home / ".smart-fork").exists()


def test_a_blank_element_of_a_list_is_none(world, wrote):
    told = answer(world, intent="", lines=["", f"{FILE}:4"], files=[" "])

    assert [wrote] == [hit["session_id"] for hit in told["results"]]


@pytest.fixture
def started(monkeypatch) -> list[tuple[str, Options]]:
    seen: list[tuple[str, Options]] = []

    def refused(request, _engine=None):
        seen.append((request.session, request.options))
        raise Usage("not now")

    monkeypatch.setattr("smart_fork.forking.plan.fork_session", refused)
    return seen


def test_a_session_that_is_named_needs_a_prompt_or_an_intent_and_who_wrote_code_is_forked_with_a_prompt(
    world, wrote, started
):
    for how in (
        {"fork_session_id": wrote},
        {"lines": [f"{FILE}:4"], "fork_index": 0},
        {"files": [FILE], "auto_fork": True},
    ):
        assert "not now" == answer(world, **how, prompt="go on")["error"]
        assert " is required" in refusal(world, **how)
    assert [(wrote, "go on")] * 3 == [(session, options.prompt) for session, options in started]


@pytest.mark.skipif(sys.platform == "win32", reason="a library for people")
def test_a_script_asks_the_library_the_same(world, shop, wrote):
    (hit,) = find(FindRequest("", tag="later"), Engine(world.model), shop).results

    assert (1.0, wrote) == (hit.score, hit.session_id)
