"""What Gemini CLI's calls were given and gave back."""

from __future__ import annotations

from collections.abc import Iterator

from smart_fork.agents.forms import Record
from smart_fork.agents.gemini.fold import TOOLS
from smart_fork.agents.gemini.records import answered, answers_in, calls_in, output_of, parts_of
from smart_fork.agents.work import GivenBack, UsedTool, Work, in_paragraphs, patch_shown


class GeminiWork(Work):
    """See `Work`. Results stand beside their calls, or in messages of their own."""

    def used(self, record: Record) -> Iterator[UsedTool]:
        for call in calls_in(record):
            if isinstance(call.given, dict):
                yield UsedTool(call.id, TOOLS.get(call.name, call.name), call.given)

    def gave(self, record: Record) -> Iterator[GivenBack]:
        told = record.get("toolCalls")
        made = [call for call in told if isinstance(call, dict)] if isinstance(told, list) else []
        patches = {str(call.get("id") or ""): patch_shown(call.get("resultDisplay")) for call in made}
        for call in calls_in(record):
            if call.result is not None:
                yield GivenBack(call.id, *output_of(call), patches.get(call.id, ""))
        for answer in answers_in(record):
            yield GivenBack(str(answer.get("id") or ""), *answered(answer))

    def thought(self, record: Record) -> str:
        told = record.get("thoughts")
        parts = [part for part in told if isinstance(part, dict)] if isinstance(told, list) else []
        listed = (part.get(name) for part in parts for name in ("subject", "description"))
        said = (part.get("text") for part in parts_of(record.get("content")) if part.get("thought"))
        return in_paragraphs([*listed, *said])
