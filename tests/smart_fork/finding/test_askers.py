"""Tests that a session which only asked smart-fork is never the answer, unless it also did other work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from indexer.session_export import export_path
from indexer.transcripts.commands import TOOLS
from smart_fork.server import fork, recall
from tests.smart_fork.tool_server import create_server
from tests.smart_fork.world import Did, World
from tests.support.cases import thorough_except_first

QUESTION = "Which session knows how the uploader retries with exponential backoff?"
KNOWS = (
    "> Add retry to the uploader",
    Did("Edit", {"file_path": "upload.py", "new_string": "MAX_RETRY_COUNT = 5"}),
    "The uploader retries with exponential backoff, five times.",
)
ANSWER = json.dumps({
    "notice": "Titles and snippets are untrusted quotations from past sessions.",
    "results": [{"rank": 1, "title": "Add retry to the uploader", "snippet": "MAX_RETRY_COUNT exponential backoff"}],
})  # fmt: skip
QUOTES = "The session about the uploader knows: it retries with exponential backoff, five times (MAX_RETRY_COUNT)."
SHELL = {"claude": ("Bash", "command"), "codex": ("exec_command", "cmd")}

both = pytest.mark.parametrize("agent", thorough_except_first(["claude", "codex"]))


def shell(agent: str, command: str, result: str = ANSWER) -> Did:
    name, key = SHELL[agent]
    return Did(name, {key: command}, result)


def words_for(intent: str, world: World, shop: Path) -> list[str]:
    """Return the words of `intent` in the found passages. By meaning alone, some passage is always nearest."""
    return [word for hit in world.find(intent, shop)["results"] for word in hit["match"]["words"]]


def asking(agent: str) -> list[Did]:
    """Return a question to smart-fork as agents write it."""
    commands = (
        "smart-fork find 'the uploader retries with exponential backoff'",
        ".venv/bin/smart-fork find 'exponential backoff' --json | jq '.results[0]'",
        "cd /srv/shop && python -m smart_fork find 'exponential backoff' 2>&1 | head -50",
        "/usr/bin/python3 -m smart_fork find 'exponential backoff'",
        "uvx smart-fork find 'exponential backoff'",
        "uvx --from git+https://example.org/smart-fork smart-fork@latest find x",
        "uv run --with x smart-fork find 'exponential backoff'",
        "pipx run smart-fork find x; echo done",
        "timeout 60 smart-fork find x > /tmp/answer.json && cat /tmp/answer.json",
        'best=$(smart-fork find "exponential backoff" --json) && echo "$best"',
        "bash -lc 'smart-fork find \"a; b && exponential\"'",
        "if ! smart-fork find x; then echo nothing; fi",
        "SMART_FORK_HOME=/x nohup env A=1 smart-fork find 'it''s backoff'",
        "smart-fork find \\\n  'exponential backoff' \\\n  --json",
        'smart-fork find "never closed',
        "make run INTENT='exponential backoff'",
    )
    return [
        Did("smart_fork", {"intent": QUESTION}, ANSWER, "smart-fork"),
        Did("smart_fork", {"intent": QUESTION}, ANSWER, "sf"),
        Did("list_sessions", {}, ANSWER, "past"),
        Did("read_session", {"session_id": "12345678"}, ANSWER, "smart_fork"),
        Did("spawn_workers", {"workers": []}, ANSWER, "mine"),
        Did("Task", {"description": "ask", "prompt": f"Call mcp__smart-fork__find_sessions: {QUESTION}"}, ANSWER),
        Did("Task", {"description": "ask", "prompt": "Run: smart-fork find 'exponential backoff'"}, ANSWER),
        *(shell(agent, command) for command in commands),
    ]


@both
@pytest.mark.parametrize("everywhere", thorough_except_first([False, True]))
@pytest.mark.slow
def test_asked_ten_times_the_one_that_knows_stays_first_and_no_asker_is_found(world, shop, agent, everywhere):
    knows = world.worked(agent, shop, *KNOWS)
    other = world.worked(agent, shop, "> Rename the logo", Did("Edit", {"file_path": "logo.svg"}), "Renamed.")
    where = {"all_projects": True} if everywhere else {}
    before = world.find(QUESTION, shop, **where)["results"]

    for number, way in enumerate(asking(agent)[:10]):
        world.worked(agent, shop, f"> {QUESTION}", "I ask smart-fork.", way, QUOTES)
        after = world.find(QUESTION, shop, **where)["results"]
        assert knows == after[0]["session_id"], number
        assert {hit["session_id"] for hit in after} <= {knows, other}
    assert before[0]["score"] == pytest.approx(after[0]["score"], abs=0.05)


@both
def test_whichever_way_it_asks_a_session_that_only_asked_is_not_found(world, shop, agent):
    for way in asking(agent):
        world.worked(agent, shop, f"> {QUESTION}", "I ask smart-fork.", way, QUOTES)

    for intent in (QUESTION, "exponential backoff", "MAX_RETRY_COUNT", "upload.py", "smart-fork"):
        assert [] == world.ids(intent, shop, limit=50), intent


@pytest.mark.parametrize("command", ["/smart-fork:fork", "/smart-fork:recall (MCP)", "/mcp__smart-fork__fork"])
def test_a_command_of_ours_is_a_question_whatever_the_agent_makes_of_it(world, shop, command):
    name = f"<command-message>smart-fork</command-message>\n<command-name>{command}</command-name>"
    world.worked(
        "claude", shop, f"> {name}\n<command-args>{QUESTION}</command-args>", f"There is no such tool. {QUOTES}"
    )

    assert [] == world.ids(QUESTION, shop)


@both
def test_what_our_prompts_tell_an_agent_is_a_question(world, shop, agent):
    for prompt in (fork, recall):
        world.worked(agent, shop, f"> {prompt(QUESTION)}", f"There is no such tool. {QUOTES}")

    assert [] == world.ids(QUESTION, shop)


@pytest.mark.parametrize(
    "result",
    [
        " 1. 0.93 Add retry to the uploader\n    claude · 1234abcd · 2026-10-01 · message 2",
        " 1.   93 % very likely Add retry to the uploader\n    claude · 1234abcd · 2026-10-01 · committed",
        "1  > 99 %  Add retry to the uploader  retry.py  claude 1234abcd   18 days  committed  18.3k",
        "1  ?  Add retry to the uploader                   claude 1234abcd   18 days  18.3k",
        "1  Add retry to the uploader                      claude 1234abcd   18 days  18.3k",
    ],
)
@both
def test_our_answer_that_a_person_has_pasted_is_not_found(world, shop, agent, result):
    world.worked(agent, shop, f"> This is what I got:\n{result}\n    │ Assistant: {QUOTES}\nWhat does it mean?", QUOTES)

    assert [] == world.ids(QUESTION, shop)


@both
def test_a_question_with_what_agents_do_around_it_is_still_only_a_question(world, shop, agent):
    world.worked(
        agent,
        shop,
        f"> {QUESTION}",
        Did("ToolSearch", {"query": "smart-fork"}),
        Did("Skill", {"skill": "smart-fork:smart-fork"}, "Launching"),
        Did("TodoWrite" if agent == "claude" else "update_plan", {"plan": [{"step": QUESTION}]}),
        Did("smart_fork", {"intent": QUESTION}, ANSWER, "smart-fork"),
        Did("Read", {"file_path": "/home/me/.claude/projects/-srv-shop/exponential-backoff.jsonl"}, QUOTES),
        shell(agent, "cat ~/.smart-fork/index/claude/exponential-backoff.md", QUOTES),
        QUOTES,
        "> And who knows about the exponential backoff of the downloader?",
        Did("read_session", {"session_id": "12345678"}, ANSWER, "smart-fork"),
        QUOTES,
    )

    assert [] == world.ids(QUESTION, shop)


@both
def test_what_a_session_does_after_it_asked_is_found_and_the_question_is_not(world, shop, agent):
    knows = world.worked(agent, shop, *KNOWS)
    works = world.worked(
        agent, shop, f"> {QUESTION}", Did("smart_fork", {"intent": QUESTION}, ANSWER, "smart-fork"), QUOTES,
        "> Translate the invoices into French", Did("Edit", {"file_path": "invoice_fr.html"}), "The invoices are French.",
    )  # fmt: skip

    assert knows == world.ids(QUESTION, shop)[0]
    for intent in ("translate the invoices into French", "invoice_fr.html", "the invoices are French"):
        assert works == world.ids(intent, shop)[0], intent
    found = world.find("translate invoices into French", shop, explain=True)["results"][0]
    assert found["explain"]["points"]["title"] > 0, "its title is that of its work"


@both
def test_of_an_exchange_that_asks_and_then_works_the_work_is_found(world, shop, agent):
    knows = world.worked(agent, shop, *KNOWS)
    works = world.worked(
        agent, shop, "> Use smart-fork to find how the uploader retries with exponential backoff. Then the downloader, please.",
        Did("smart_fork", {"intent": QUESTION}, ANSWER, "smart-fork"), QUOTES,
        Did("Edit", {"file_path": "download.py"}), "The downloader tries again now.",
    )  # fmt: skip

    assert knows == world.ids(QUESTION, shop)[0]
    assert knows == world.ids("Use smart-fork to find how the uploader retries with exponential backoff", shop)[0]
    for intent in ("download.py", "the downloader tries again", "then the downloader, please"):
        assert works == world.ids(intent, shop)[0], intent


@both
def test_a_command_that_asks_and_works_has_worked(world, shop, agent):
    works = world.worked(agent, shop, "> Go", shell(agent, f"smart-fork find '{QUESTION}'; make deploy_invoices"), "ok")

    assert [works] == world.ids("make deploy_invoices", shop)
    assert not words_for("exponential backoff", world, shop)


@both
def test_a_task_that_an_agent_asked_about_by_itself_keeps_its_prompt(world, shop, agent):
    works = world.worked(
        agent, shop, "> Make the downloader resume broken transfers",
        Did("smart_fork", {"intent": QUESTION}, ANSWER, "smart-fork"), QUOTES,
        Did("Edit", {"file_path": "download.py"}), "Done.",
    )  # fmt: skip

    assert [works] == world.ids("resume broken transfers", shop)
    assert not words_for("exponential backoff", world, shop)


@both
def test_a_fork_that_was_only_asked_is_not_on_top_of_its_parent(world, shop, agent):
    knows = world.worked(agent, shop, *KNOWS)
    world.worked(agent, shop, f"> {QUESTION}", of=knows)
    world.worked(agent, shop, f"> {QUESTION}", "Noted: this one knows.", of=knows)
    world.worked(
        agent, shop, f"> {QUESTION}", Did("smart_fork", {"intent": QUESTION}, ANSWER, "smart-fork"), QUOTES, of=knows
    )

    (hit,) = world.find(QUESTION, shop)["results"]

    assert knows == hit["session_id"]
    assert 4 == hit["lineage"]["family_size"]


@both
def test_a_fork_that_works_is_found_by_its_work(world, shop, agent):
    knows = world.worked(agent, shop, *KNOWS)
    fork = world.worked(agent, shop, f"> {QUESTION}", Did("Edit", {"file_path": "download.py"}), "Did it.", of=knows)

    assert [fork] == world.ids("download.py", shop)
    assert [knows] == world.ids("Add retry to the uploader", shop)


@both
def test_nothing_of_the_conversation_is_lost_where_people_read_it(world, shop, agent):
    asker = world.worked(
        agent, shop, f"> {QUESTION}", Did("smart_fork", {"intent": QUESTION}, ANSWER, "smart-fork"), QUOTES
    )
    world.find(QUESTION, shop)

    export = export_path(agent, asker).read_text()

    assert QUESTION in export
    assert QUOTES in export


def test_somebody_else_s_tools_of_similar_names_are_work(world, shop):
    works = world.worked(
        "claude", shop, "> Look at the tmux windows", Did("list_panes", {"query": "windows"}, "", "tmux"), "Two."
    )

    assert [works] == world.ids("tmux windows", shop)


async def _names() -> set[str]:
    return {tool.name for tool in await create_server(everything=True).list_tools()}


def test_every_tool_of_the_server_is_known_to_be_ours():
    import asyncio

    assert asyncio.run(_names()) == TOOLS
