"""What the agents put into a person's message is not the person's words (F-152)."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from indexer.transcripts.texts import _INJECTED, _NOT_A_PERSON, RECALL_TAG, strip_boilerplate, strip_recall
from tests.support.cases import parametrize_subtests

PIECES = st.lists(
    st.sampled_from(
        [
            "<skill>",
            "</skill>",
            "<sk",
            "ill>",
            "</sk",
            "<command-args>",
            "</command-args>",
            "<!worker-session:1!>",
            "a",
            "\n",
            " ",
            "\n\n\n",
            "[worker-done:x]",
            "[Request interrupted",
            "# AGENTS.md instructions for x\n",
            "<environment_context>",
        ]
    ),
    max_size=10,
).map("".join)


@parametrize_subtests("tag", _INJECTED)
def test_an_injected_element_is_taken_out_wherever_it_stands(tag):
    element = f'<{tag} kind="x">\nnot theirs <b>\n</{tag}>'

    assert (
        strip_boilerplate(f"{element}\nfix the <b>retry</b>\n\n\n\n{element} please")
        == "fix the <b>retry</b>\n\n please"
    )
    assert strip_boilerplate(element) == ""


@pytest.mark.parametrize(
    "below",
    ["Read the output file to retrieve the result: /tmp/t/b1.output", "Full transcript available at: C:\\t\\a 1"],
)
def test_what_tells_that_a_task_has_ended_is_nobodys_words_with_the_line_below_it(below):
    told = f"<task-notification>\n<task-id>b1</task-id>\n</task-notification>\n{below}"

    assert ("", "go on") == (strip_boilerplate(told), strip_boilerplate(f"{told}\ngo on"))
    assert strip_boilerplate(below) == below


def test_two_elements_of_a_kind_leave_what_stands_between_them():
    assert strip_boilerplate("<skill>a</skill>keep<skill>b</skill>") == "keep"


def test_an_element_that_hides_in_the_halves_of_another_is_taken_out_too():
    assert strip_boilerplate("<sk<skill>a</skill>ill>b</skill>keep") == "keep"


def test_an_element_that_is_cut_off_hides_the_message_only_at_its_beginning():
    assert strip_boilerplate("<environment_context>\n  <cwd>/srv") == ""
    assert strip_boilerplate("what does <skill> mean in the manual?") == "what does <skill> mean in the manual?"
    assert strip_boilerplate("</skill> closes it") == "</skill> closes it"


def test_of_a_slash_command_its_arguments_are_kept():
    text = "<command-message>fix</command-message>\n<command-name>/fix</command-name>\n<command-args>the flaky test</command-args>"

    assert strip_boilerplate(text) == "the flaky test"
    assert strip_boilerplate("<command-name>/clear</command-name><command-args></command-args>") == ""


def test_a_paste_is_the_person_s_words_without_its_marks():
    """Claude Code 2.1.332 adds two newlines around each paste; without them the prompt is as it was typed."""
    paste = '\n\n<pasted_content id="20f8">\nfirst\n\nlast\n</pasted_content id="20f8">\n\n'

    assert "first\n\nlast" == strip_boilerplate(paste)
    assert "Look at first\n\nlast and tell me" == strip_boilerplate(f"Look at {paste} and tell me")


def test_project_instructions_are_not_a_prompt():
    assert strip_boilerplate("# AGENTS.md instructions for /srv/shop\n\n<INSTRUCTIONS>\nbe nice\n</INSTRUCTIONS>") == ""


def test_of_an_editor_s_message_the_request_is_kept():
    text = "# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\nfix a.py\n"

    assert strip_boilerplate(text) == "fix a.py"


@parametrize_subtests(
    "notice",
    [
        "Stop hook feedback:\n- [./before-stop]: read your change once more",
        "SubagentStop hook feedback:\nnot yet",
        "UserPromptSubmit hook additional context: the session that knows is 60309e1e",
        "SessionStart:startup hook success: ready",
        'PreToolUse:Bash hook blocking error from command: "./guard": no',
        "UserPromptSubmit operation blocked by hook:\nno",
        "Operation stopped by hook: enough",
        '<hook_prompt hook_run_id="stop:1">\nread your change once more\n</hook_prompt>',
        "<user-prompt-submit-hook>the session that knows is 60309e1e</user-prompt-submit-hook>",
    ],
)
def test_what_a_hook_says_is_nobody_s_prompt(notice):
    assert strip_boilerplate(notice) == ""


def test_who_speaks_of_hooks_is_heard():
    for text in (
        "Stop hook errors when I commit: why?",
        "Write a hook feedback form: one field",
        "What is a Stop hook?",
    ):
        assert strip_boilerplate(text) == text


def test_marks_of_workers_are_taken_out():
    """F-105: a fork carries its parent's marks."""
    assert strip_boilerplate("do it <!smart-fork-session:ab12!> now [worker-done:ab12]") == "do it  now"
    assert (
        strip_boilerplate("<!DOCTYPE html> and <!-- a session: note -->")
        == "<!DOCTYPE html> and <!-- a session: note -->"
    )


@parametrize_subtests(
    "text",
    [
        "[Request interrupted by user]",
        "Caveat: The messages below were generated by the user while running local commands. DO NOT respond.",
        "This session is being continued from a previous conversation that ran out of context.",
        "Stop hook feedback:\n- lint failed",
        "Operation stopped by hook: no",
    ],
)
def test_what_the_agent_says_in_the_person_s_name_is_not_theirs(text):
    assert strip_boilerplate(text) == ""
    assert strip_boilerplate(f"<system-reminder>x</system-reminder>\n{text}") == ""


@given(PIECES)
def test_stripping_twice_changes_nothing(text):
    once = strip_boilerplate(text)

    assert strip_boilerplate(once) == once


@given(st.text())
def test_a_text_without_marks_is_only_trimmed(text):
    plain = text.replace("<", "").replace("[", "").replace("#", "").replace("\n\n\n", "")
    assume(not plain.strip().startswith(_NOT_A_PERSON))

    assert strip_boilerplate(plain) == plain.strip()


@pytest.mark.parametrize(
    "text", ["</skill>" + "<skill>" * 60_000, "<!" + "session" * 60_000, "<skill " * 60_000 + "</skill>"]
)
def test_a_hostile_text_is_read_in_one_pass(text):
    """With a search to the end for each tag this would take minutes: the suite's time limit would end it."""
    assert len(strip_boilerplate(text)) <= len(text)


def test_what_we_have_told_an_agent_is_none_of_its_own_words():
    """Whoever repeats which session knows does not know it himself."""
    told = f"<{RECALL_TAG}>A past session probably knows: retry.</{RECALL_TAG}>"

    assert "I was told  and I fork it." == strip_recall(f"I was told {told} and I fork it.\n")
    assert "" == strip_recall(told)
    assert "see" == strip_boilerplate(f"see {told}")
