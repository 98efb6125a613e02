"""Texts in copies: how much of a record a model reads, shortened results, and texts of our own."""

from __future__ import annotations

from typing import Any

from indexer.transcripts.texts import LEFT_OUT_TAG

#: Fields of a record that are not text for a model: ids, signatures, and encrypted data.
_NO_TEXT = frozenset({
    "type", "id", "role", "status", "call_id", "tool_use_id", "signature", "data", "encrypted_content",
    "thoughtSignature",
})  # fmt: skip
#: An estimate of an image's size in characters, independent of its file's size.
IMAGE_CHARACTERS = 6_000
_IMAGES = frozenset({"image", "input_image", "image_url", "inlineData", "document"})
#: No record is deeper.
_DEPTH = 64
#: The characters kept at either end of a shortened result; at either end of one of many texts; of the line between.
END_CHARACTERS, _LEAST_END, _LINE = 200, 20, 80
#: The fields of a result with its text.
_TEXTS = frozenset({"text", "output", "content", "error", "functionResponse", "response"})


def shortened(result: Any, kind: str = "text", end: int = END_CHARACTERS, depth: int = 0) -> Any:
    """Return a tool result with both ends of each text, and a text of that `kind` for each image."""
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
    """Return how many characters of a value a model reads."""
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


def aside(text: str) -> str:
    """Return a text of our own in the place of a prompt. Readers do not take it for a person's."""
    return f"<{LEFT_OUT_TAG}>\n{text}\n</{LEFT_OUT_TAG}>"
