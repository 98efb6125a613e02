"""Forms of a person's answers that several agents write."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from indexer.lazy import late
from indexer.transcripts.answers import Answers, Questions, Said
from indexer.values import dict_in, json_in, list_in

_UNNAMED = r'[^"\n]{1,1000}'
#: What follows an answer between quotation marks. A preview is the agent's.
_END = late(
    r'"(?: selected preview:\n.*?)?(?: user notes: (?P<notes>.*?))?'
    r"(?:, |\. (?:You can now continue|Read the answers carefully|Call \w+ again).*|\.?\s*)\Z",
    re.DOTALL,
)
_NOTE = "user_note: "


class QuotedAnswers(Answers):
    """Answers between quotation marks: ``"question"="answer"``, one behind the other."""

    none = ("", "Unanswered", "(No answer provided)")

    def answered(self, output: str, questions: Questions) -> Said:
        return self._quoted(output, questions) if '"="' in output else super().answered(output, questions)

    def _quoted(self, output: str, questions: Questions) -> Iterator[tuple[str, str]]:
        known = [re.escape(text) for *_, text in questions if text and f'"{text}"="' in output]
        parts = re.split(rf'"({"|".join(known) or _UNNAMED})"="', output)
        for question, rest in zip(parts[1::2], parts[2::2], strict=True):
            end = _END.search(rest)
            words, notes = (rest[: end.start()], end["notes"] or "") if end else (rest, "")
            if words not in self.none or notes:
                yield question, f"{'' if words in self.none else words} {notes}".strip()


class JsonAnswers(Answers):
    """Answers in a JSON object, by the ids of their questions, by their numbers or by their texts."""

    def answered(self, output: str, questions: Questions) -> Said:
        if not output.lstrip().startswith("{"):
            return super().answered(output, questions)
        return self._named(dict_in(dict_in(json_in(output.strip())).get("answers")), questions)

    def _named(self, answers: Mapping[str, object], questions: Questions) -> Iterator[tuple[str, str]]:
        named = {str(number): text for number, (_, _, text) in enumerate(questions)}
        named |= {name: text for identity, _, text in questions for name in (identity, text) if name}
        for key, value in answers.items():
            told = dict_in(value).get("answers") if isinstance(value, Mapping) else value
            parts = [told] if isinstance(told, str) else [one for one in list_in(told) if isinstance(one, str)]
            yield named.get(key, ""), ", ".join(part.removeprefix(_NOTE) for part in parts)
