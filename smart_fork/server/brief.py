"""Answers as a model is to read them: every byte of them costs, with each request from then on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp_types import CallToolResult, TextContent

#: Bytes of an answer with five results; what is left of them by all else, the snippets share.
ANSWER, RESULTS = 4_000, 5
SNIPPET_LEAST, TITLE = 80, 80
#: Of a result, what decides about it. The rest is for who asks to have the scores explained.
_RESULT = (
    "rank", "score", "session_id", "agent_type", "title", "working_directory", "project_inferred_from", "date",
    "snippet", "said_by", "match", "token_estimate", "outcome", "drift", "can_fork", "warning", "origin",
    "also_remote", "wrote", "noted",
)  # fmt: skip
#: Where it can be opened: said by the tool that may hand it on to others.
_PLACES = ("source_path", "lines", "jsonl_path", "fork_command")
_MATCH = ("turn_index", "words", "token_estimate")
_INDEX = ("sessions", "complete", "problem")
#: What is said of a question by itself, and what the model has said itself.
_LEFT_OUT = ("query", "also", "collections", "count", "engine", "fallback_used")


def brief(answer: Mapping[str, Any], *, places: bool) -> dict[str, Any]:
    """An answer of the search with what a model decides by; with `places` also where a result can be opened."""
    kept = {key: value for key, value in answer.items() if places or key not in _LEFT_OUT}
    if "index" in answer:
        kept["index"] = _only(answer["index"], (*_INDEX, *(() if answer["index"]["complete"] else ("unread_logs",))))
    if "selection" in (forked := kept.get("forked_session", {})):
        others = {"merged": [_selected(one) for one in forked["merged"]]} if "merged" in forked else {}
        kept["forked_session"] = forked | {"selection": _selected(forked["selection"]), **others}
    if "results" in answer:
        kept["results"] = [_result(hit, answer, places=places) for hit in answer["results"]]
        _cut(kept)
    return kept


def answered(result: CallToolResult) -> CallToolResult:
    """The same without nulls, on one line: a key without a value is left out."""
    if result.structured_content is None:
        return result
    said = _without_nulls(result.structured_content)
    text = json.dumps(said, ensure_ascii=False, separators=(",", ":"))
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=said)


def _result(hit: Mapping[str, Any], answer: Mapping[str, Any], *, places: bool) -> dict[str, Any]:
    kept = _only(hit, (*_RESULT, *(_PLACES if places else ())))
    if not places and f"{hit['working_directory']}/".startswith(f"{answer['project_path']}/"):
        del kept["working_directory"]
    kept["title"] = _beginning(hit["title"], TITLE)
    kept["match"] = _only(hit["match"], _MATCH)
    if noted := kept.get("noted"):
        verdicts = [*([noted.pop("verdict")] if "verdict" in noted else []), *noted.pop("forks", ())]
        kept["noted"] = noted | ({"said": [one["said"] for one in verdicts]} if verdicts else {})
    if hit["drift"]:
        kept["drift"] = _only(hit["drift"], ("files", "changed"))
    kept |= {key: hit["price"][key] for key in ("cached", "cached_until") if hit["price"].get("cached")}
    if (size := hit["lineage"]["family_size"]) > 1:
        kept["lineage"] = hit["lineage"] if places else {"family_size": size}
    return kept


def _selected(selection: Mapping[str, Any]) -> dict[str, Any]:
    """What a fork within a budget has of a session: of its exchanges those that are kept."""
    return {**selection, "exchanges": [one for one in selection["exchanges"] if one["kept"] != "nothing"]}


def _cut(answer: dict[str, Any]) -> None:
    """Make the snippets so short that the whole is."""
    hits = [hit for hit in answer["results"] if hit.get("snippet")]
    if hits:
        written = len(
            _written(_without_nulls(answer | {"results": [hit | {"snippet": ""} for hit in answer["results"]]}))
        )
        room = ANSWER * max(1.0, len(answer["results"]) / RESULTS) - written
        for hit in hits:
            hit["snippet"] = _beginning(hit["snippet"], max(SNIPPET_LEAST, int(room / len(hits))))


def _beginning(text: str, most: int) -> str:
    """As much of `text` as takes `most` bytes in JSON."""
    short = text[:most]
    while len(written := _written(short)) > most + 2:  # its quotes
        short = short[: -max(1, (len(written) - most) // 2)]
    return text if short == text else short[:-1].rstrip() + "…"


def _written(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode(errors="replace")


def _only(told: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: told[key] for key in keys if key in told}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value
