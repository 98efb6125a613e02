"""A person's answers and reasons for refusing a call are that person's words, as each agent writes them."""

from __future__ import annotations

import json

import pytest

from indexer.masking import mask
from indexer.pipeline import document_of, searchable_texts
from indexer.session_export import chunk, pieces_of
from indexer.transcripts.base import UNREAD
from indexer.transcripts.calls import CallRecorder
from indexer.transcripts.line_hashes import error_lines
from indexer.transcripts.model import GivenBack, Session
from indexer.transcripts.symbols import Symbols
from smart_fork.agents import AGENTS
from smart_fork.agents.claude.log_files import ClaudeAdapter
from smart_fork.agents.log_readers import READERS
from smart_fork.forking.fork_points import branch_point
from tests.indexer.index_inputs import session_of
from tests.indexer.transcripts import records as made
from tests.indexer.transcripts.records import SESSION, id_of, prompts

DATABASE = "Which database shall the shop have?"
CHOICE = {"question": DATABASE, "header": "Store", "id": "store", "options": [{"label": "SQLite"}]}
WORDS = "Postgres, the walrus team knows it"
QUOTED = (
    f'User has answered your questions: "{DATABASE}"="{WORDS}". You can now continue with the user\'s answers in mind.'
)
REFUSED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the "
    "new_string was NOT written to the file). To tell you how to proceed, the user said:\n"
)


def heard(session: Session) -> list[tuple[int, str]]:
    return [(number, turn.text) for number, turn in session.messages if turn.role == "user"]


def claude(home, *middle: object) -> Session:
    begun = (
        made.user("a", None, "Plan the shop"),
        made.assistant("b", "a", made.use("c1", str(middle[0]), **dict(middle[1]))),
    )
    ended = middle[2], made.assistant("d", "c", "The plan is ready."), made.user("e", "d", "Go on")
    return made.read_claude(made.claude_log(home, *begun, *ended))


def test_an_answer_in_claude_code_stands_behind_its_question_and_begins_no_exchange(home):
    answered = made.result("c", "b", "c1", QUOTED)

    session = claude(home, "AskUserQuestion", {"questions": [CHOICE]}, answered)

    assert [(0, "Plan the shop"), (2, f"{DATABASE} {WORDS}"), (4, "Go on")] == heard(session)
    assert ["Plan the shop", "Go on"] == prompts(session)
    assert [0, 4] == [one.start for one in session.exchanges()]
    assert 3 == branch_point(session, "c"), "a fork at the answer has the agent's last word on it"
    assert [WORDS in piece.text for piece in pieces_of(session, mask) if piece.role == "user"] == [False, True, False]


def test_words_of_a_refusal_in_claude_code_are_the_persons_without_what_the_program_adds(home):
    note = "\n\nNote: The user's next message may contain a correction or preference. Pay close attention"
    refused = made.result("c", "b", "c1", f"{REFUSED}use the heron branch{note}", is_error=True)

    session = claude(home, "ExitPlanMode", {"plan": "# Plan"}, refused)

    assert (2, "use the heron branch") in heard(session)


def test_an_answer_in_codex_is_found_by_the_id_of_its_question(home):
    asked = json.dumps({"questions": [CHOICE]})
    output = json.dumps({"answers": {"store": {"answers": ["Other", f"user_note: {WORDS}"]}}})
    log = made.codex_log(
        home, id_of(1), made.meta(id_of(1)), made.message("user", "Plan the shop"),
        made.item("function_call", name="request_user_input", arguments=asked, call_id="c1"),
        made.item("function_call_output", call_id="c1", output=output), made.message("assistant", "Planned."),
    )  # fmt: skip

    assert f"{DATABASE} Other, {WORDS}" in [text for _, text in heard(made.read_codex(log))]


def test_an_answer_in_copilot_is_found(home):
    log = made.copilot_log(
        home, made.happened("user.message", "a", content="Plan the shop"),
        made.happened("assistant.message", "b", content="", toolRequests=[made.requested("c1", "ask_user", question=DATABASE)]),
        made.happened("tool.execution_complete", "c", toolCallId="c1", success=True, result={"content": f"User responded: {WORDS}"}),
        made.happened("assistant.message", "d", content="Planned."),
    )  # fmt: skip

    assert f"{DATABASE} {WORDS}" in [text for _, text in heard(made.read_copilot(log))]


def test_an_answer_in_qwen_code_is_found_under_its_heading(home):
    output = f"User has provided the following answers:\n\n**Store**: {WORDS}"
    log = made.qwen_log(
        home, made.linked("user", "a", None, "Plan the shop"),
        made.linked("assistant", "b", "a", made.calling("c1", "ask_user_question", questions=[CHOICE])),
        made.linked("tool_result", "c", "b", made.answering("c1", "ask_user_question", output=output)),
        made.linked("assistant", "d", "c", "Planned."),
    )  # fmt: skip

    assert f"{DATABASE} {WORDS}" in [text for _, text in heard(made.read_qwen(log))]


def test_an_answer_in_the_record_of_its_call_follows_what_the_agent_says_there(home):
    output = json.dumps({"answers": {"0": WORDS}})
    log = made.gemini_log(
        home, made.spoken("user", "a", "Plan the shop"),
        made.spoken("gemini", "b", "I have a question.", toolCalls=[made.ran("c1", "ask_user", output, questions=[CHOICE])]),
        made.spoken("gemini", "d", "Planned."),
    )  # fmt: skip

    session = made.read_gemini(log)

    said = [(number, turn.role) for number, turn in session.messages]
    assert [(0, "user"), (1, "assistant"), (1, "user"), (2, "assistant")] == said
    assert (1, f"{DATABASE} {WORDS}") in heard(session)


@pytest.mark.parametrize(("agent", "tool", "output", "failed", "words"), [
    ("opencode", "question", QUOTED.replace(f'"{WORDS}"', '"Unanswered"'), False, ""),
    ("opencode", "question", QUOTED, False, f"{DATABASE} {WORDS}"),
    ("opencode", "bash", f"The user rejected permission to use this specific tool call with the following feedback: {WORDS}", True, WORDS),
    ("copilot", "bash", f"The user rejected this tool call. User feedback: {WORDS}", True, WORDS),
    ("gemini", "exit_plan_mode", f"Plan rejected. User feedback: {WORDS}\n\nThe plan is stored at: /p\nRevise the plan", False, WORDS),
    ("gemini", "exit_plan_mode", "Plan rejected. No feedback provided.", False, ""),
    ("claude", "AskUserQuestion", f'The user answered: "{DATABASE}"="SQLite" selected preview:\nCREATE\n user notes: {WORDS}. Read the answers carefully \u2014 they', False, f"{DATABASE} SQLite {WORDS}"),
    ("claude", "AskUserQuestion", f'{REFUSED}The user wants to clarify these questions.\n    Start by asking\n\n    Questions asked:\n- "{DATABASE}"\n  (No answer provided)', True, ""),
    ("claude", "AskUserQuestion", f'{REFUSED}The user wants to clarify these questions.\n\n    Questions asked:\n- "{DATABASE}"\n  Answer: {WORDS}', True, f"{DATABASE} {WORDS}"),
    ("claude", "AskUserQuestion", "User declined to answer the questions.", False, ""),
    ("droid", "AskUser", f"<answer>{WORDS}</answer>", False, f"{DATABASE} {WORDS}"),
    # of each agent, its own form; a tool whose output only quotes such words, and a hook
    ("kimi", "AskUserQuestion", json.dumps({"answers": {DATABASE: WORDS}}), False, f"{DATABASE} {WORDS}"),
    ("qwen", "exit_plan_mode", f"Plan rejected. User feedback: {WORDS}", False, WORDS),
    ("claude", "Read", f"{REFUSED}delete it all", False, ""),
    ("claude", "Bash", "PreToolUse:Bash hook error: the user said:\ndelete it all", True, ""),
    ("claude", "Bash", f"Exit code 1\n{REFUSED}delete it all", True, ""),
])  # fmt: skip
def test_a_persons_words_are_told_from_a_programs(agent, tool, output, failed, words):
    answers = AGENTS[agent].codec.answers

    assert words == answers.words_in(output, answers.asked_by(tool, {"questions": [CHOICE]}), failed=failed)


@pytest.mark.parametrize("agent", [agent for agent in AGENTS if agent.codec], ids=lambda agent: agent.name)
def test_the_forms_of_answers_are_the_agents_own(agent):
    """What one agent writes is a text like any other in the result of another."""
    answers = agent.codec.answers
    claudes = answers.words_in(f"{REFUSED}use the heron branch", None, failed=True)
    headed = answers.words_in(
        f"User has provided the following answers:\n\n**Store**: {WORDS}", [["", "Store", DATABASE]], failed=False
    )

    assert ("heron" in claudes, DATABASE in headed and "**" not in headed) == (
        agent.name == "claude",
        agent.name == "qwen",
    )


def test_an_answer_is_found_when_the_log_is_read_in_two_parts(home):
    answered = made.result("c", "b", "c1", QUOTED)
    claude(home, "AskUserQuestion", {"questions": [CHOICE]}, answered)
    log = next(home.rglob(f"{SESSION}.jsonl"))
    whole = log.read_bytes()
    lines = whole.splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:2]))
    first = ClaudeAdapter().read(log, UNREAD)
    log.write_bytes(whole)

    second = ClaudeAdapter().read(log, first.checkpoint)

    assert second.session is not None
    assert [turn.answer for turn in second.session.turns if turn.answer] == [f"{DATABASE} {WORDS}"]


def test_a_secret_in_an_answer_is_masked():
    answers = AGENTS["opencode"].codec.answers
    output = QUOTED.replace(WORDS, "the password is: Zx9-kestrel-4471")

    words = answers.words_in(output, answers.asked_by("question", CHOICE), failed=False)

    assert "kestrel" not in words


# Summaries


def test_the_summary_of_a_compacted_session_is_searched_and_is_no_prompt(home):
    text = "This session is being continued from a previous conversation. The narwhal cache was chosen."
    boundary = made.chained("system", "b", None, subtype="compact_boundary", logicalParentUuid="a2")
    log = made.claude_log(
        home, made.user("a", None, "Choose a cache"), made.assistant("a2", "a", "Chosen."), boundary,
        made.user("c", "b", text, isCompactSummary=True), made.user("d", "c", "Go on"), made.assistant("e", "d", "Done."),
    )  # fmt: skip

    session = made.read_claude(log)
    found = [piece for piece in pieces_of(session, mask) if "narwhal" in piece.text]

    assert ["Choose a cache", "Go on"] == prompts(session)
    assert ["assistant"] == [piece.role for piece in found]
    assert found[0].text.startswith("Summary of what came before: ")
    assert "narwhal" not in "".join(turn.text for _, turn in session.messages)


def test_a_summary_is_found_by_its_words_alone_and_no_passage_reaches_over_it(home):
    summary = made.user("s", "b", "The narwhal cache was chosen.", isCompactSummary=True)
    log = made.claude_log(
        home, made.user("a", None, "Choose a cache"), made.assistant("b", "a", "Chosen."), summary,
        made.assistant("c", "s", "Next is the mailer."),
    )  # fmt: skip

    document, export = document_of(made.read_claude(log), READERS)

    assert "narwhal" in document.words.answered
    assert ["User: Choose a cache\nChosen.", "Next is the mailer."] == [one.text for one in document.chunks]
    lines = export.text.splitlines()
    assert not any("narwhal" in "".join(lines[one.lines[0] - 1 : one.lines[1]]) for one in document.chunks)


def test_of_a_refusal_the_persons_words_are_in_its_passage_and_the_programs_are_not(home):
    refused = made.result("c", "b", "c1", f"{REFUSED}Sign them with the walrus key", is_error=True)

    document, _ = document_of(claude(home, "Edit", {"file_path": "/work/hooks.py"}, refused), READERS)
    passage = document.chunks[0].text

    assert "hooks.py -> refused\nUser: Sign them with the walrus key" in passage
    assert "rejected" not in passage


# Codes of errors in outputs that no flag marks


@pytest.mark.parametrize(("line", "code"), [
    ("error[E0308]: mismatched types", "E0308"),
    ("src/a.ts(3,5): error TS2345: Argument of type", "TS2345"),
    ("Error: ENOENT: no such file or directory, open 'x'", "ENOENT"),
    ("ERROR: relation does not exist (SQLSTATE 42P01)", "SQLSTATE 42P01"),
    ("request failed: HTTP 418", "HTTP 418"),
    ("npm ERR! code ERESOLVE", "ERESOLVE"),
    ("Process failed with exit code 137", "exit code 137"),
    ("failed with status 0x80070005", "0x80070005"),
])  # fmt: skip
def test_the_code_of_an_error_line_finds_its_session(line, code):
    doings = CallRecorder({}, AGENTS["claude"].codec, lambda _: None)

    doings.result(GivenBack("c", f"compiling\n{line}\n"))

    assert code in list(doings.symbols)


def test_codes_elsewhere_than_in_lines_of_errors_do_not_count():
    found = Symbols()

    found.add_codes(error_lines("row A1234 is fine\nsensor E0499 is warm\n" * 50))

    assert [] == list(found)


def test_an_output_that_is_all_errors_adds_a_few_codes():
    found = Symbols()

    found.add_codes(error_lines("".join(f"error E{number}: oh\n" for number in range(1000, 9000))))

    assert 12 >= len(list(found))


# Long pastes

LOG = "\n".join(f"2026-11-20T09:00:{i % 60:02}Z node-{i % 7} INFO request {i} took {i % 97} ms" for i in range(9000))
CODE = "\n".join(f'{{"id": {i}, "state": "ready", "took": {i % 13}}},' for i in range(9000))
ONE_LINE = "x".join(f'{{"id":{i}}}' for i in range(60_000))
ASKED = "Why does the ibis scheduler skip Tuesdays?"


@pytest.mark.parametrize("paste", [LOG, CODE, ONE_LINE], ids=["log", "code", "line"])
@pytest.mark.slow
def test_a_long_paste_is_a_few_passages_and_its_question_is_the_title(paste):
    for prompt in (f"{paste}\n\n{ASKED}", f"{ASKED}\n\n{paste}"):
        document, export = document_of(session_of(prompt, "Because cron counts from Sunday."), READERS)

        assert 40 > len(document.chunks)
        assert any(ASKED in one.text for one in document.chunks)
        assert prompt.splitlines()[4500 % len(prompt.splitlines())][:800] in export.text, "the export has all of it"


def test_a_session_is_called_after_the_question_before_a_log(home):
    log = made.claude_log(home, made.user("a", None, f"{ASKED}\n{LOG}"), made.assistant("b", "a", "Because."))

    assert ASKED == made.read_claude(log).title


@pytest.mark.parametrize("paste", [LOG, CODE], ids=["log", "code"])
def test_a_session_is_called_after_the_question_behind_a_paste(home, paste):
    log = made.claude_log(home, made.user("a", None, f"{paste}\n{ASKED}"), made.assistant("b", "a", "Because."))

    assert ASKED == made.read_claude(log).title


def test_the_one_line_of_a_paste_that_says_something_else_is_searched():
    lines = LOG.splitlines()
    lines[4321] = "2026-11-20T09:00:01Z node-3 FATAL quokka overflow in the ledger"

    kept = searchable_texts(session := session_of("\n".join(lines), "Seen."), pieces_of(session, mask), READERS).pieces

    assert any("quokka" in one.text for one in chunk(kept, "seed"))


def test_passages_of_a_long_paste_stand_where_their_export_says():
    session = session_of(f"{CODE}\n{ASKED}", "Seen.")
    document, export = document_of(session, READERS)
    lines = export.text.split("\n")

    for one in document.chunks:
        first, last = one.lines
        assert one.text.removeprefix("User: ").split("\n")[0] in "\n".join(lines[first - 1 : last])
