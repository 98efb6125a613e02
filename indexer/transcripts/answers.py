"""Finds what a person answers to a question of the agent, or says when refusing a call, in the results of calls.

The forms are those of the agents' programs, or of their source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from indexer.masking import NOTHING, Masked, mask
from indexer.patterns import late
from indexer.transcripts.boilerplate import strip_boilerplate
from indexer.unchecked import dict_in, dicts_in, json_in, list_in, text_in

#: The tools that ask the person, and those that propose a plan.
_ASKING = late(r"(?i)ask_?user\w*|askquestion|ask_followup_question|request_user_input|question")
_PLANNING = late(r"(?i)exit_?plan_?mode")
_MOST_QUESTIONS, _QUESTION_CHARACTERS = 20, 1000
#: What stands before the words of a refusal, and what the program has put behind them.
_REFUSED = late(
    r"(?:Error: )?(?:The user doesn't want to |Permission for this tool use was denied\.)[^\n]{0,400}?"
    r"(?:[Tt]he user said:|reason for the rejection:)\s*"
    r"|The user rejected permission to use this specific tool call with the following feedback: "
    r"|(?:The user rejected|Permission denied|Denied by)[^\n]{0,300}?(?:[Uu]ser feedback|the following feedback): "
    r"|Plan rejected\. User feedback: "
)
_BEHIND = late(r"\n\s*(?:Note: The user's next message may contain |The plan is stored at: )")
#: Claude Code writes this where the person wants to talk about the questions, with the answers so far.
_CLARIFIES = "The user wants to clarify these questions"
#: How the answer of one question begins, where it is not named.
_SAID = late(r"\s*(?:<answer>\s*|(?:The )?[Uu]ser (?:has )?(?:responded|selected|answered|chose|replied): ?)")
#: How programs say that nobody has answered.
_NO_ANSWER = late(
    r"(?i)\s*(?:[\[<{](?!answer>)|error|failed|cannot|(?:the )?user (?:has )?(?:did|not|dismissed|declined|skipped|"
    r"cancel|submitted|wants to (?:chat|talk|discuss|clarify))|no (?:answer|response)"
    r"|(?:question|request) (?:was )?(?:timed|cancel))"
)
_QWENS = "User has provided the following answers:"
_UNNAMED = r'[^"\n]{1,1000}'
#: What follows an answer between quotation marks. A preview is the agent's.
_END = late(
    r'"(?: selected preview:\n.*?)?(?: user notes: (?P<notes>.*?))?'
    r"(?:, |\. (?:You can now continue|Read the answers carefully|Call \w+ again).*|\.?\s*)\Z",
    re.DOTALL,
)
_NONE = ("", "Unanswered", "(No answer provided)")
_NOTE = "user_note: "

#: Questions of one call as they are kept until it is answered: the id, heading and text of each.
Questions = list[list[str]]


def asked_by(tool: str, given: object) -> Questions | None:
    """Return the questions that a call asks the person, masked; empty for a plan, and `None` for any other call."""
    if _PLANNING.fullmatch(tool):
        return []
    if not _ASKING.fullmatch(tool) or not isinstance(given, Mapping):
        return None
    listed = dicts_in(given.get("questions")) or [dict(given)]
    return [
        [mask(text_in(one.get("id"))), mask(text_in(one.get("header"))), mask(_question(one))]
        for one in listed[:_MOST_QUESTIONS]
    ]


def words_in(output: str, questions: Questions | None, *, failed: bool) -> Masked:
    """Return what a person says in the result of a call, each answer behind its question; empty if it is no person's.

    `questions` are those of `asked_by`. Other calls say something only where they were refused.
    """
    if not failed and questions is None:
        return NOTHING
    if refused := _REFUSED.match(output):
        words = output[refused.end() :]
        words = words[: behind.start()] if (behind := _BEHIND.search(words)) else words
        said = _clarified(words) if words.startswith(_CLARIFIES) else [("", words)]
    elif failed or not questions:
        return NOTHING
    else:
        said = _answers(output, questions)
    lines = [f"{question} {words}".strip() for question, words in said if words.strip() not in _NONE]
    return mask(strip_boilerplate("\n".join(lines))) if lines else NOTHING


def _question(one: Mapping[str, object]) -> str:
    return text_in(one.get("question") or one.get("message") or one.get("prompt")).strip()[:_QUESTION_CHARACTERS]


def _answers(output: str, questions: Questions) -> list[tuple[str, str]]:
    if output.lstrip().startswith("{"):
        return list(_in_json(dict_in(dict_in(json_in(output.strip())).get("answers")), questions))
    if output.lstrip().startswith(_QWENS):
        return list(_under_headings(output, questions))
    if '"="' in output:
        return list(_between_marks(output, [text for *_, text in questions]))
    if _NO_ANSWER.match(output):
        return []
    words = output[begun.end() :] if (begun := _SAID.match(output)) else output
    return [(questions[0][2] if len(questions) == 1 else "", words.strip().removesuffix("</answer>").strip())]


def _in_json(answers: Mapping[str, object], questions: Questions) -> Iterator[tuple[str, str]]:
    """Codex names questions by their ids, Gemini CLI by their numbers."""
    named = {str(number): text for number, (_, _, text) in enumerate(questions)}
    named |= {identity: text for identity, _, text in questions if identity}
    for key, value in answers.items():
        told = dict_in(value).get("answers") if isinstance(value, Mapping) else value
        parts = [told] if isinstance(told, str) else [one for one in list_in(told) if isinstance(one, str)]
        yield named.get(key, ""), ", ".join(part.removeprefix(_NOTE) for part in parts)


def _under_headings(output: str, questions: Questions) -> Iterator[tuple[str, str]]:
    headings = {heading or f"Question {number}": text for number, (_, heading, text) in enumerate(questions, 1)}
    named = "|".join(map(re.escape, headings))
    parts = re.split(rf"^\*\*({named})\*\*: ", output, flags=re.MULTILINE)
    yield from ((headings[one], words.strip()) for one, words in zip(parts[1::2], parts[2::2], strict=True))


def _between_marks(output: str, questions: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Claude Code and OpenCode: ``"question"="answer"``, one behind the other."""
    known = [re.escape(text) for text in questions if text and f'"{text}"="' in output]
    parts = re.split(rf'"({"|".join(known) or _UNNAMED})"="', output)
    for question, rest in zip(parts[1::2], parts[2::2], strict=True):
        end = _END.search(rest)
        words, notes = (rest[: end.start()], end["notes"] or "") if end else (rest, "")
        if words not in _NONE or notes:
            yield question, f"{'' if words in _NONE else words} {notes}".strip()


def _clarified(words: str) -> Iterator[tuple[str, str]]:
    question = ""
    for line in words.splitlines():
        if line.startswith('- "'):
            question = line[3:].removesuffix('"')
        for mark in ("  Answer: ", "  User notes: "):
            if line.startswith(mark):
                yield question, line.removeprefix(mark)
