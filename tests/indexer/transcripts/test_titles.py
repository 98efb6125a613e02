"""What a session is called: a name, or the first prompt that says what it is about."""

from __future__ import annotations

import json

import pytest

from indexer.transcripts.texts import says_something, title_of
from smart_fork.agents.claude.log_files import ClaudeAdapter
from smart_fork.agents.codex.log_files import CodexAdapter
from tests.indexer.transcripts.records import (
    assistant,
    claude_log,
    codex_log,
    event,
    id_of,
    message,
    meta,
    read_claude,
    read_codex,
    user,
)
from tests.support.cases import parametrize_subtests

SAY_NOTHING = [
    "q", "hi", "8", "167", "y", "continue", "Continue.", "ok, go on please", "yes!", "/clear", "/specify", "/workflows:review",
    "/Users/me/shot.png", "'/Users/me/My File.png'", "/Users/me/My\\ File.png", "~/notes.md", "@src/app.py", "src/app.py",
    "C:\\Users\\me\\a.txt", "file:///var/a.log", "/var/a.log\n/var/b.log", "[Image #1]", "[Pasted text #1 +12 lines]",
    "[Request interrupted by user]", "...", "🙂", "你好", "继续", "请继续", "続けて", "계속", "Can we continue from where we left off?",
    "resume last session", "hola", "weiter bitte", "", "   ", "---",
]  # fmt: skip
SAY_SOMETHING = [
    "fix tests", "whoami", "git status", "add retry", "/review the uploader", "/fix login", "why is /etc/hosts empty",
    "@src/app.py crashes at start", "检查目前项目的设计", "修复登录", "アップロードを直して", "빌드를 고쳐줘", "почини сборку",
    "hello world program in C", "https://github.com/acme/shop/pull/1", "[Image #1] why is the header blue",
    "/var/a.log shows a timeout", "goreleaser-config",
]  # fmt: skip


@parametrize_subtests("prompt", SAY_NOTHING)
def test_a_prompt_that_says_nothing_is_no_title_where_another_says_something(prompt):
    assert "add retry to the uploader" == title_of("", [prompt, "add retry to the uploader"])


@parametrize_subtests("prompt", SAY_SOMETHING)
def test_a_prompt_that_says_something_is_the_title(prompt):
    assert says_something(prompt)


@pytest.mark.parametrize("prompts", [["hi", "8"], ["/clear"], ["", "q"]])
def test_a_session_whose_prompts_all_say_nothing_is_called_after_the_first(prompts):
    assert next(filter(None, prompts)) == title_of("", prompts)


@parametrize_subtests(
    ("prompt", "title"),
    [
        ("## Goal\n\nfix the race", "Goal fix the race"),
        ("> it fails\n\n- why?\n- mend it", "it fails why? mend it"),
        ("Implement the following plan:\n\n# Retry the upload\n\n## Why\nIt fails", "Retry the upload"),
        ("Implement the following plan:\n\n# Plan: Retry the upload", "Retry the upload"),
        ("PLEASE IMPLEMENT THIS PLAN:\n# Implementation plan: Retry the upload\n## Why", "Retry the upload"),
        ("Implement the following plan:\n\n---\n# Plan\n\n## Context\n\n## Retry the upload", "Retry the upload"),
        ("Implement the following plan:\n\n```markdown\n# Retry\n```", "Implement the following plan: Retry"),
        ("***:\n\n# Plan: Retry the upload", "Retry the upload"),
        ("Mend the words and links of this page:\n\n# Set up", "Mend the words and links of this page: Set up"),
        ("[Image #1] why is the header blue", "why is the header blue"),
        ("```\nerror: no such table\n```\nwhy?", "error: no such table why?"),
        ("##", "##"),
    ],
)  # fmt: skip
def test_a_title_is_one_line_without_marks_of_markdown(prompt, title):
    assert title == title_of("", [prompt])


@parametrize_subtests("by_agent", ["API Error: Request timed out.", "Invalid API key · Please run /login", "…", "8"])
def test_what_an_agent_says_where_it_could_make_no_title_is_none(by_agent):
    assert "fix the race" == title_of("", ["fix the race"], by_agent=by_agent)


def test_a_name_that_a_person_gave_counts_whatever_it_says():
    assert "8" == title_of("8", ["fix the race"], by_agent="Race in the uploader")


@parametrize_subtests("piece", ["/a", "'", "# ", "\\", "[", "@", "a'", "- \n"])
@pytest.mark.slow
def test_a_huge_prompt_is_looked_at_in_a_bounded_way(piece):
    assert len(title_of("", [piece * 200_000] * 30)) <= 100


def test_a_question_below_pasted_lines_that_are_alike_is_the_title():
    pasted = "\n".join(f"the worker took {number} seconds for a page of the report" for number in range(200))

    assert "Why is it so slow since Monday?" == title_of("", [f"{pasted}\nWhy is it so slow since Monday?"])


def test_a_summary_of_an_earlier_leaf_is_stale(home):
    log = claude_log(
        home,
        user("u1", None, "fix the uploader"),
        assistant("a1", "u1", "done"),
        {"type": "summary", "summary": "Uploader fixed", "leafUuid": "a1"},
        user("u2", "a1", "now rename the table of the orders"),
        assistant("a2", "u2", "renamed"),
    )
    session = read_claude(log)

    assert ("fix the uploader", "Uploader fixed") == (session.title, session.also_called)


def test_a_summary_of_what_was_said_last_is_the_title(home):
    log = claude_log(
        home,
        user("u1", None, "fix the uploader"),
        assistant("a1", "u1", "done"),
        {"type": "summary", "summary": "Uploader fixed", "leafUuid": "a1"},
        user("u2", "a1", "now rename the table"),
        assistant("a2", "u2", "renamed"),
        {"type": "summary", "summary": "Uploader and table", "leafUuid": "a2"},
        assistant("a3", "a2", "and looked at it again"),
    )
    session = read_claude(log)

    assert ("Uploader and table", "Uploader fixed") == (session.title, session.also_called)


def test_names_that_were_replaced_are_kept_beside_the_title_and_no_failures_nor_those_of_others(home):
    log = claude_log(
        home,
        {"type": "ai-title", "aiTitle": "Uploader retry"},
        {"type": "ai-title", "aiTitle": "API Error: Request timed out."},
        {"type": "summary", "summary": "Of another session", "leafUuid": "elsewhere"},
        {"type": "custom-title", "customTitle": "uploads"},
        {"type": "ai-title", "aiTitle": "Of the parent", "sessionId": id_of(9)},
        user("u1", None, "fix the uploader"),
        assistant("a1", "u1", "ok"),
        {"type": "custom-title", "customTitle": "release 4"},
        {"type": "ai-title", "aiTitle": "x" * 200_000},
    )
    session = read_claude(log)

    assert ("release 4", "Uploader retry\nuploads") == (session.title, session.also_called)


def test_of_very_many_names_the_last_are_kept_and_each_is_masked(home):
    names = [
        {"type": "ai-title", "aiTitle": f"plan {number} postgres://app:kX7mQ2W9pL4@db/shop"} for number in range(99)
    ]
    session = read_claude(claude_log(home, *names, user("u1", None, "fix it"), assistant("a1", "u1", "ok")))

    assert "kX7mQ2W9pL4" not in session.title + session.also_called
    assert "plan 97" in session.also_called
    assert 19 == len(session.also_called.splitlines())


def test_former_names_of_a_thread_are_kept(home):
    named = [event("thread_name_updated", thread_name=name) for name in ("Old", None, "New", "Old", "Newest")]
    session = read_codex(codex_log(home, id_of(1), meta(id_of(1)), *named, message("user", "one")))

    assert ("Newest", "New\nOld") == (session.title, session.also_called)


@pytest.mark.parametrize(
    "kind", [("custom-title", "customTitle"), ("agent-name", "agentName"), ("ai-title", "aiTitle")]
)
def test_a_title_of_another_session_in_a_copied_log_is_not_its_own(home, kind):
    named, field = kind
    log = claude_log(
        home,
        {"type": named, field: "Of the parent", "sessionId": id_of(9)},
        user("u1", None, "fix the uploader"),
        assistant("a1", "u1", "ok"),
    )
    assert "fix the uploader" == read_claude(log).title


def test_a_title_at_the_end_of_a_long_log_is_shown_in_lists_too(home):
    padding = [assistant(f"a{i}", f"a{i - 1}" if i else "u1", "lorem ipsum " * 400) for i in range(80)]
    log = claude_log(
        home,
        user("u1", None, "hi"),
        *padding,
        {"type": "ai-title", "aiTitle": "Uploader retry"},
        user("u2", "a79", "bye"),
    )
    assert log.stat().st_size > 300_000
    assert "Uploader retry" == ClaudeAdapter().glance(log).title == read_claude(log).title


def test_the_first_prompt_that_says_something_is_the_title_of_a_rollout(home):
    log = codex_log(home, id_of(1), meta(id_of(1)), message("user", "hi"), message("user", "add retry to the uploader"))

    assert "add retry to the uploader" == read_codex(log).title


def test_a_thread_has_the_name_that_codex_keeps_for_it(home):
    log = codex_log(
        home, id_of(1), meta(id_of(1)), event("thread_name_updated", thread_name="Old"), message("user", "one")
    )
    names = [
        {"id": id_of(1), "thread_name": "Uploader", "updated_at": "2026-07-01T10:00:00Z"},
        {"id": id_of(2), "thread_name": "Another", "updated_at": "2026-07-01T11:00:00Z"},
        {"id": id_of(1), "thread_name": "Uploader retry", "updated_at": "2026-07-01T12:00:00Z"},
        {"id": id_of(1), "thread_name": None},
        ["no record"],
    ]
    index = home / ".codex/session_index.jsonl"
    index.write_text("".join(json.dumps(name) + "\n" for name in names) + '{"id": "torn')

    assert "Uploader retry" == read_codex(log).title == CodexAdapter().glance(log).title

    index.unlink()
    assert "Old" == read_codex(log).title


def test_names_that_cannot_be_read_are_none(home):
    log = codex_log(home, id_of(1), meta(id_of(1)), message("user", "fix the uploader"))
    (home / ".codex/session_index.jsonl").mkdir()

    assert "fix the uploader" == read_codex(log).title
