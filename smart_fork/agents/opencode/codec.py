"""OpenCode's messages as items: each has its parts, and a call and its result are one of these."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from indexer.transcripts.items import GivenBack, Item, UsedTool
from indexer.unchecked import dict_in, dicts_in, text_in
from smart_fork.agents.codec import Codec, Record


class OpenCodeCodec(Codec):
    """See `Codec`."""

    tools = MappingProxyType({
        "bash": "Bash", "edit": "Edit", "glob": "Glob", "grep": "Grep", "multiedit": "MultiEdit", "read": "Read",
        "todoread": "TodoWrite", "todowrite": "TodoWrite", "write": "Write",
    })  # fmt: skip
    starting = ("task",)

    def decode(self, record: Record) -> Item:
        """See `Codec.decode`."""
        parts = dicts_in(record.get("parts"))
        made = [part for part in parts if part.get("type") == "tool"]
        states = [(text_in(part.get("callID") or part.get("id")), dict_in(part.get("state"))) for part in made]
        return Item(
            text_of(parts),
            tuple(
                UsedTool(identity, self.tools.get(name := text_in(part.get("tool")), name), dict_in(state.get("input")))
                for part, (identity, state) in zip(made, states, strict=True)
            ),
            tuple(
                GivenBack(identity, *output_of(state), text_in(dict_in(state.get("metadata")).get("diff")))
                for identity, state in states
                if state.get("status") in ("completed", "error")
            ),
            tuple(text_in(part.get("text")) for part in parts if part.get("type") == "reasoning"),
            sum(part.get("type") == "file" and str(part.get("mime")).startswith("image/") for part in parts),
        )


def output_of(state: Record) -> tuple[str, bool]:
    """What came back from a call, with a shell's exit status first, and whether the call failed."""
    output = text_in(state.get("output") if state.get("status") == "completed" else state.get("error"))
    status = dict_in(state.get("metadata")).get("exit")
    if type(status) is int:
        output = f"Exit code: {status}\n{output}"
    return output, state.get("status") == "error" or (type(status) is int and status != 0)


def text_of(parts: Sequence[Record]) -> str:
    """What was said in a message; what OpenCode itself has put into it, such as a file, is left out."""
    said = (
        part.get("text")
        for part in parts
        if part.get("type") == "text" and part.get("synthetic") is not True and part.get("ignored") is not True
    )
    return "\n\n".join(text for text in said if isinstance(text, str) and text).strip()
