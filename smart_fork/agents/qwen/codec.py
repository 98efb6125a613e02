"""Qwen Code's records as items: messages of Gemini's ``parts``, which say, call, answer or think."""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import MappingProxyType

from indexer.transcripts.items import GivenBack, Item, UsedTool
from indexer.unchecked import dict_in, dicts_in, text_in
from smart_fork.agents.codec import MessageCodec, Record, patch_shown

#: The header of what a shell command gave back, and what stands below its output.
_RAN = re.compile(r"\ACommand: .*?^Output: (?P<output>.*)^Error: ", re.DOTALL | re.MULTILINE)
_EXIT = re.compile(r"^Exit Code: (-?\d{1,9})$", re.MULTILINE)


#: The types of records that the model is sent.
SAID = ("user", "assistant", "tool_result")


class QwenCodec(MessageCodec):
    """See `Codec`. What is shown of an edit stands beside its result."""

    field = "parts"
    tools = MappingProxyType({
        "edit": "Edit", "write_file": "Write", "notebook_edit": "NotebookEdit", "read_file": "Read",
        "grep_search": "Grep", "glob": "Glob", "todo_write": "TodoWrite", "task_stop": "KillShell",
        "tool_search": "ToolSearch", "exit_plan_mode": "EnterPlanMode", "run_shell_command": "Bash",
    })  # fmt: skip
    starting = ("agent",)

    def decode(self, record: Record) -> Item:
        """See `Codec.decode`."""
        texts, calls, results, thoughts, images = [], [], [], [], 0
        patch = patch_shown(dict_in(record.get("toolCallResult")).get("resultDisplay"))
        for part in parts_of(record.get("message")):
            call, answer, text = part.get("functionCall"), part.get("functionResponse"), part.get("text")
            if isinstance(call, dict):
                calls.append(UsedTool(str(call.get("id") or ""), str(call.get("name") or ""), call.get("args")))
            if isinstance(answer, dict):
                results.append(GivenBack(str(answer.get("id") or ""), *output_of(answer), patch))
            if part.get("thought") is True:
                thoughts.append(str(text or ""))
            elif isinstance(text, str):
                texts.append(text)
            images += "inlineData" in part
        return Item("\n\n".join(texts), tuple(calls), tuple(results), tuple(thoughts), images)


def sums_up(record: Record) -> bool:
    """Whether a record is what a compaction left: it stands for all before it."""
    return record.get("subtype") == "chat_compression"


def parts_of(message: object) -> list[Record]:
    """Return the parts of a message."""
    return dicts_in(dict_in(message).get("parts"))


def text_of(parts: Iterable[Record]) -> str:
    """What these parts say, without thoughts."""
    texts = (part.get("text") for part in parts if part.get("thought") is not True)
    return "\n\n".join(text for text in texts if isinstance(text, str))


def output_of(answer: Record) -> tuple[str, bool]:
    """What came back from a call, with a shell's exit status first, and whether the call failed."""
    given = dict_in(answer.get("response"))
    failed = isinstance(given.get("error"), str)
    output = text_in(given.get("error") if failed else given.get("output"))
    if output.startswith("Command: ") and (ran := _RAN.match(output)):
        status = _EXIT.search(output, ran.end())
        output = f"Exit code: {status[1]}\n{ran['output']}" if status else ran["output"]
    return output, failed
