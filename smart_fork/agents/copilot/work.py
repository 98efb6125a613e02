"""What Copilot CLI's calls were given and gave back."""

from __future__ import annotations

from collections.abc import Iterator

from smart_fork.agents.copilot.fold import TOOLS, data_of, output_of, requests_in
from smart_fork.agents.forms import Record
from smart_fork.agents.work import GivenBack, UsedTool, Work, in_paragraphs


class CopilotWork(Work):
    """See `Work`."""

    def used(self, record: Record) -> Iterator[UsedTool]:
        for request in requests_in(data_of(record)):
            name, given = str(request.get("name") or ""), request.get("arguments")
            if isinstance(given, dict | str):
                yield UsedTool(str(request.get("toolCallId") or ""), TOOLS.get(name, name), given)

    def gave(self, record: Record) -> Iterator[GivenBack]:
        data = data_of(record)
        if record.get("type") == "tool.execution_complete":
            result = data.get("result")
            patch = result.get("detailedContent") if isinstance(result, dict) else None
            output, failed = output_of(data)
            yield GivenBack(str(data.get("toolCallId") or ""), output, failed, patch if isinstance(patch, str) else "")

    def thought(self, record: Record) -> str:
        return in_paragraphs([data_of(record).get("reasoningText")])
