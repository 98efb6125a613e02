"""Tests that the session that did the work comes before sessions that were only asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smart_fork.finding.ranking import FIT_THRESHOLD
from tests.smart_fork.world import Did, World
from tests.support.cases import thorough_except_first

ASKED = "Add retry with exponential backoff to the uploader"
WORKED = (
    "> The upload of large files breaks off now and then, make it robust",
    Did("Edit", {"file_path": "upload.py", "new_string": "retry(backoff)"}),
    Did("Bash", {"command": "git commit -am 'Uploader retries'"}, "[main 1a2b3c4] Uploader retries\n 1 file changed"),
    "The uploader retries now, with exponential backoff.",
)
STOPPED = "[Request interrupted by user]"
REJECTED = "The user doesn't want to proceed with this tool use. The tool use was rejected."


def said(world: World, shop: Path, *steps: str | Did, error: str = "", stopped: bool = False) -> str:
    """Write a session of Claude Code that ends with an error of the program, or by an interruption."""
    session = world.worked("claude", shop, *steps)
    path = world.log_of(session)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    ends: list[dict] = []
    if error:
        content = [{"type": "text", "text": error}]
        message = {"role": "assistant", "model": "<synthetic>", "content": content}
        ends.append({"type": "assistant", "isApiErrorMessage": True, "message": message})
    if stopped:
        message = {"role": "user", "content": [{"type": "text", "text": STOPPED}]}
        ends.append({"type": "user", "message": message})
    for number, end in enumerate(ends):
        before = records[-1]
        records.append(before | {"uuid": f"{session[:-1]}{number}", "parentUuid": before["uuid"]} | end)
    world.write_claude(session, shop, records)
    return session


ONLY_ASKED = {
    "nothing was said": {"steps": (f"> {ASKED}",)},
    "stopped": {"steps": (f"> {ASKED}",), "stopped": True},
    "stopped while it spoke": {"steps": (f"> {ASKED}", "I'll add retries to the uploader."), "stopped": True},
    "stopped while it read": {
        "steps": (f"> {ASKED}", "I'll look.", Did("Read", {"file_path": "upload.py"}, "def upload(): …")),
        "stopped": True,
    },
    "too long": {"steps": (f"> {ASKED}",), "error": "Prompt is too long"},
    "no model": {"steps": (f"> {ASKED}",), "error": "API Error: 529 overloaded"},
    "asked twice": {"steps": (f"> {ASKED}", f"> {ASKED}"), "error": "API Error: Connection error."},
    "stopped, asked again, stopped": {
        "steps": (f"> {ASKED}", "I'll add retries to the uploader.", f"> {ASKED}"),
        "stopped": True,
    },
    "asked back": {"steps": (f"> {ASKED}", "Hello! How can I help you today?")},
    "did not know": {"steps": (f"> {ASKED}", "I don\u2019t know how the uploader does that.")},
    "looked, and did not know": {
        "steps": (f"> {ASKED}", Did("Read", {"file_path": "upload.py"}, ""), "Not sure where that is, sorry.")
    },
    "did not know, in German": {"steps": (f"> {ASKED}", "Das weiß ich leider nicht.")},
    "did not know, in Chinese": {"steps": (f"> {ASKED}", "我不知道。")},
    "greeted before": {"steps": ("> Hi!", "Hello! How can I help?", f"> {ASKED}"), "stopped": True},
}


@pytest.mark.parametrize("how", thorough_except_first(ONLY_ASKED.values(), 6), ids=ONLY_ASKED)
@pytest.mark.parametrize("later", thorough_except_first([False, True]))
def test_a_session_that_was_only_asked_is_behind_the_one_that_did_it(world, shop, how, later):
    if later:
        knows, asked = world.worked("claude", shop, *WORKED), said(world, shop, *how["steps"], **ends(how))
    else:
        asked, knows = said(world, shop, *how["steps"], **ends(how)), world.worked("claude", shop, *WORKED)

    scores = {hit["session_id"]: hit["score"] for hit in world.find(ASKED, shop)["results"]}

    assert knows == next(iter(scores))
    assert scores[knows] > FIT_THRESHOLD > scores.get(asked, 0.0)


def ends(how: dict) -> dict:
    return {name: value for name, value in how.items() if name != "steps"}


@pytest.mark.parametrize("agent", thorough_except_first(["claude", "codex"]))
def test_where_nobody_did_it_the_one_that_was_asked_is_found_and_does_not_fit(world, shop, agent):
    asked = world.worked(agent, shop, f"> {ASKED}")

    (hit,) = world.find(ASKED, shop)["results"]
    assert (asked, True) == (hit["session_id"], hit["score"] < FIT_THRESHOLD)


def test_a_prompt_of_which_nothing_came_does_not_speak_for_a_session_that_did_something_else(world, shop):
    knows = world.worked("claude", shop, *WORKED)
    other = ("> Rename the logo", Did("Edit", {"file_path": "logo.svg", "new_string": "logo"}), "Renamed.")
    said(world, shop, *other, f"> {ASKED}", stopped=True)

    assert knows == world.find(ASKED, shop)["results"][0]["session_id"]


def test_an_answer_in_words_is_knowledge(world, shop):
    told = world.claude(shop, "How does the uploader retry?", "Five times, with exponential backoff, in upload.py.")

    (hit,) = world.find("How does the uploader retry?", shop)["results"]
    assert (told, True) == (hit["session_id"], hit["score"] > FIT_THRESHOLD)


@pytest.mark.parametrize("said", [
    "I don't know all of it, but retry.py has the backoff.", "I don't know. `make retry` may do it.", "Not sure, 3 times?!",
    f"I do not know who wrote the uploader, but it waits longer each time{', and longer' * 9}.",
])  # fmt: skip
def test_who_does_not_know_all_and_names_something_has_answered(world, shop, said):
    told = world.claude(shop, ASKED, said)

    (hit,) = world.find(ASKED, shop)["results"]
    assert (told, True) == (hit["session_id"], hit["score"] > FIT_THRESHOLD)


def test_a_question_after_work_is_no_answer_that_is_missing(world, shop):
    asks = world.worked("claude", shop, f"> {ASKED}", *WORKED[1:-1], "It retries now. Shall I push it?")
    looked = world.worked(
        "claude", shop, "> Where is the logo?", Did("Read", {"file_path": "a.svg"}, "<svg>"), "In a.svg?"
    )

    assert asks == world.find(ASKED, shop)["results"][0]["session_id"]
    assert looked == world.find("Where is the logo?", shop)["results"][0]["session_id"]


def test_a_command_that_failed_was_run(world, shop):
    ran = world.worked(
        "codex", shop, f"> {ASKED}", Did("exec_command", {"cmd": "pytest tests/test_upload.py"}, "Exit code: 1\n1 failed")
    )  # fmt: skip

    (hit,) = world.find(ASKED, shop)["results"]
    assert (ran, True) == (hit["session_id"], hit["score"] > FIT_THRESHOLD)


def test_one_that_talked_about_more_than_what_another_one_did_is_found(world, shop):
    talked = world.claude(shop, ASKED, "I shall see what can be done about that.", "And the downloader?", "It retries.")
    world.worked("claude", shop, f"> {ASKED}", *WORKED[1:])

    assert talked in world.ids(ASKED, shop)


def test_of_two_that_were_asked_the_same_the_one_that_only_talked_gives_way(world, shop):
    talked = world.claude(shop, ASKED, "I shall see what can be done about that.")
    did = world.worked("claude", shop, f"> {ASKED}", *WORKED[1:])

    assert did == world.find(ASKED, shop)["results"][0]["session_id"]
    assert talked not in world.ids(ASKED, shop)
