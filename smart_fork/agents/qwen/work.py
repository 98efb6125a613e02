"""What Qwen Code's calls were given and gave back."""

from __future__ import annotations

from collections.abc import Iterator

from smart_fork.agents.forms import Record
from smart_fork.agents.qwen.fold import TOOLS, output_of, parts_of
from smart_fork.agents.work import GivenBack, UsedTool, Work, in_paragraphs, patch_shown


class QwenWork(Work):
    """See `Work`. What is shown of an edit stands beside its result."""

    def used(self, record: Record) -> Iterator[UsedTool]:
        for part in parts_of(record.get("message")):
            call = part.get("functionCall")
            if isinstance(call, dict) and isinstance(given := call.get("args"), dict):
                name = str(call.get("name") or "")
                yield UsedTool(str(call.get("id") or ""), TOOLS.get(name, name), given)

    def gave(self, record: Record) -> Iterator[GivenBack]:
        told = record.get("toolCallResult")
        patch = patch_shown(told.get("resultDisplay")) if isinstance(told, dict) else ""
        for part in parts_of(record.get("message")):
            if isinstance(answer := part.get("functionResponse"), dict):
                output, failed = output_of(answer)
                yield GivenBack(str(answer.get("id") or ""), output, failed, patch)

    def thought(self, record: Record) -> str:
        return in_paragraphs(
            part.get("text") for part in parts_of(record.get("message")) if part.get("thought") is True
        )
