"""Finds what a person answers to a question of the agent, or says when refusing a call, in the results of calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import ClassVar

from indexer.lazy import late
from indexer.masking import NOTHING, Masked, mask
from indexer.transcripts.texts import strip_boilerplate
from indexer.values import dicts_in, text_in

_MOST_QUESTIONS, _QUESTION_CHARACTERS = 20, 1000
#: How programs say that nobody has answered.
_NO_ANSWER = late(
    r"(?i)\s*(?:[\[<{](?!answer>)|error|failed|cannot|(?:the )?user (?:has )?(?:did|not|dismissed|declined|skipped|"
    r"cancel|submitted|wants to (?:chat|talk|discuss|clarify))|no (?:answer|response)"
    r"|(?:question|request) (?:was )?(?:timed|cancel))"
)
#: How the answer of one question begins, where it is not named.
_SAID = late(r"\s*(?:<answer>\s*|(?:The )?[Uu]ser (?:has )?(?:responded|selected|answered|chose|replied): ?)")

#: Questions of one call as they are kept until it is answered: the id, heading and text of each.
Questions = list[list[str]]
#: The words of each answer, behind the question; without one in a refusal.
Said = Iterable[tuple[str, str]]


class Answers:
    """A person's words in one agent's results. Without forms of its own, a result is the answer of one question."""

    #: The tools that ask the person, and those that propose a plan.
    asking: ClassVar[re.Pattern[str]] = late(r"(?i)ask_?user\w*|ask_?question|question")
    planning: ClassVar[re.Pattern[str]] = late(r"(?i)exit_?plan_?mode")
    #: What stands before the words of a refusal, and what the program has put behind them.
    refused: ClassVar[re.Pattern[str]] = late(
        r"(?:The user rejected|Plan rejected|Permission denied|Denied by)[^\n]{0,300}?"
        r"(?:[Uu]ser feedback|the following feedback): "
    )
    behind: ClassVar[re.Pattern[str] | None] = None
    #: Words that stand for no answer.
    none: ClassVar[tuple[str, ...]] = ("",)

    def asked_by(self, tool: str, given: object) -> Questions | None:
        """Return the questions that a call asks the person, masked; empty for a plan, and `None` for any other call."""
        if self.planning.fullmatch(tool):
            return []
        if not self.asking.fullmatch(tool) or not isinstance(given, Mapping):
            return None
        listed = dicts_in(given.get("questions")) or [dict(given)]
        return [
            [mask(text_in(one.get("id"))), mask(text_in(one.get("header"))), mask(_question(one))]
            for one in listed[:_MOST_QUESTIONS]
        ]

    def words_in(self, output: str, questions: Questions | None, *, failed: bool) -> Masked:
        """Return what a person says in the result of a call, each answer behind its question; empty if nothing.

        `questions` are those of `asked_by`. Other calls say something only where they were refused.
        """
        if not failed and questions is None:
            return NOTHING
        said: Said
        if refused := self.refused.match(output):
            words = output[refused.end() :]
            behind = self.behind.search(words) if self.behind else None
            said = self.refusal(words[: behind.start()] if behind else words)
        elif failed or not questions:
            return NOTHING
        else:
            said = self.answered(output, questions)
        lines = [f"{question} {words}".strip() for question, words in said if words.strip() not in self.none]
        return mask(strip_boilerplate("\n".join(lines))) if lines else NOTHING

    def refusal(self, words: str) -> Said:
        """Return the words of a refusal."""
        return [("", words)]

    def answered(self, output: str, questions: Questions) -> Said:
        """Return the answers in a result."""
        if _NO_ANSWER.match(output):
            return []
        words = output[begun.end() :] if (begun := _SAID.match(output)) else output
        return [(questions[0][2] if len(questions) == 1 else "", words.strip().removesuffix("</answer>").strip())]


def _question(one: Mapping[str, object]) -> str:
    return text_in(one.get("question") or one.get("message") or one.get("prompt")).strip()[:_QUESTION_CHARACTERS]
