"""What of a session goes into a copy that leaves something out, whoever wrote it: values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from indexer.shapes import dataclass

#: What of a record is no text that a model reads: marks, signatures, and what only its maker can read.
_NO_TEXT = frozenset({
    "type", "id", "role", "status", "call_id", "tool_use_id", "signature", "data", "encrypted_content",
    "thoughtSignature",
})  # fmt: skip
#: About what an image takes, however large its file is.
IMAGE_CHARACTERS = 6_000
_IMAGES = frozenset({"image", "input_image", "image_url", "inlineData", "document"})
#: Deeper than any record is.
_DEPTH = 64
#: What is kept of a long result at either end where it is shortened; of one of many texts; what a line on that takes.
END_CHARACTERS, _LEAST_END, _LINE = 200, 20, 80
#: Where a result that is no text has its text.
_TEXTS = frozenset({"text", "output", "content", "error", "functionResponse", "response"})


@dataclass(frozen=True, slots=True)
class LiveRecord:
    """A record of what an agent remembers: the number of the turn that it goes with, and how many characters the model
    is sent of it, or, with its results shortened, would be (`short`, where that is less). `sums_up` says that it is
    what a compaction has left of all before.
    """

    number: int
    entry: tuple[bytes, dict[str, Any]]
    characters: int = 0
    sums_up: bool = False
    short: int | None = None


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What goes into the copy: the turns of these numbers, before some of them a line on what is left out there.

    What the newest compaction up to `end`, the last turn, has left goes into it always. `tokens` is what each turn of
    the session takes. Of the turns in `shortened`, long results are cut, and say so themselves.
    """

    kept: frozenset[int]
    end: int
    told: Mapping[int, str] = field(default_factory=dict)
    tokens: tuple[int, ...] = ()
    shortened: frozenset[int] = frozenset()


def newest_summary(live: Iterable[LiveRecord], end: int) -> int | None:
    """The place of what the newest compaction up to turn `end` has left."""
    return max((place for place, one in enumerate(live) if one.sums_up and one.number <= end), default=None)


def shortened(result: Any, kind: str = "text", end: int = END_CHARACTERS, depth: int = 0) -> Any:
    """What came back from a call, of each text both ends; in the place of an image a text of that `kind`."""
    if isinstance(result, str):
        gone = len(result) - 2 * end
        if gone <= _LINE:
            return result
        return f"{result[:end]}\n[… {gone:,} characters dropped from this copy …]\n{result[-end:]}"
    if depth >= _DEPTH:
        return result
    if isinstance(result, list):
        each = max(_LEAST_END, end // max(1, len(result)))
        return [shortened(part, kind, each, depth + 1) for part in result]
    if isinstance(result, dict):
        if str(result.get("type")) in _IMAGES or "inlineData" in result:
            return {"type": kind, "text": "[an image, dropped from this copy]"}
        return {
            name: shortened(part, kind, end, depth + 1) if name in _TEXTS else part for name, part in result.items()
        }
    return result


def characters(value: Any, depth: int = 0) -> int:
    """How many characters of what is sent a model reads."""
    if isinstance(value, str):
        return len(value)
    if depth >= _DEPTH:
        return 0
    if isinstance(value, list):
        return sum(characters(part, depth + 1) for part in value)
    if isinstance(value, dict):
        if str(value.get("type")) in _IMAGES or "inlineData" in value:
            return IMAGE_CHARACTERS
        return sum(len(name) + characters(part, depth + 1) for name, part in value.items() if name not in _NO_TEXT)
    return 0 if value is None else 4
