"""Suggests turns to cut, each with a reason (``excise suggest``). Nothing is cut here."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from shlex import quote

from indexer.transcripts.lines import decode_line
from smart_fork.agents.excision.transcript import Transcript, TranscriptTurn, searchable_texts
from smart_fork.excise.answer import Suggestion, Suggestions
from smart_fork.excise.cut_plan import closure, secrets_in
from smart_fork.excise.lookup import resolve_transcript

#: Tool outputs of fewer tokens are not suggested: those that nothing mentions later, and repeated ones.
MIN_UNUSED_TOKENS, MIN_REPEATED_TOKENS = 2000, 100
#: The most names (of files and functions) of one output that are looked for in later turns.
_MAX_NAMES = 400
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9]*(?:[_./-][A-Za-z0-9]+)+|[a-z]+[A-Z][A-Za-z0-9]+|\b[A-Za-z]{9,}\b")
_EDIT_TOOLS = re.compile(r"Edit|Write|apply_patch|NotebookEdit", re.IGNORECASE)
#: Command lines that revert edits, such as `git restore`.
_REVERT = re.compile(
    r"\bgit\s+(?:checkout\s+(?:--\s|\.|HEAD)|restore\s|reset\s+--hard|revert\s|stash(?:\s+(?:push|-u))?\b(?!\s+pop))"
)


def suggest(reference: str | None, tool: str = "auto") -> Suggestions:
    """Return the ranges that could be cut from a transcript. Secrets come first, then the largest savings."""
    session = resolve_transcript(reference, tool, numbered=True)
    found = suggestions(session)
    return Suggestions(session.session_id, session.tool, str(session.source_path), session.tokens, tuple(found))


def suggestions(session: Transcript) -> list[Suggestion]:
    """Return the suggested cuts for a loaded session, except of turns that are in its parent's file."""
    found = [
        *_reverted(session), *_repeated_outputs(session), *_unused_outputs(session), *_secrets(session),
    ]  # fmt: skip
    return sorted(found, key=lambda one: (one.kind != "secret", -one.tokens))


def _reverted(session: Transcript) -> Iterator[Suggestion]:
    """Suggest reverted edits: the turns from the first edit after a prompt to the command that reverted it."""
    began: int | None = None
    for position, turn in enumerate(session.turns):
        if turn.is_parents:
            continue
        if turn.prompt:
            began = None
        if began is None and any(_EDIT_TOOLS.search(call.name) for call in turn.tool_calls):
            began = position
        if began is None or not turn.tool_calls or not any(map(_REVERT.search, _texts(turn))):
            continue
        attempt = [one.id for one in session.turns[began : position + 1] if not one.prompt]
        yield _suggestion(session, "reverted", attempt, "an attempt that was reverted later")
        began = None


def _repeated_outputs(session: Transcript) -> Iterator[Suggestion]:
    """Suggest long tool outputs that are repeated later, except the last occurrence."""
    last: dict[bytes, TranscriptTurn] = {}
    for turn in session.turns:
        if turn.is_parents or not turn.tool_results or turn.token_est < MIN_REPEATED_TOKENS:
            continue
        digest = hashlib.blake2b("\0".join(_outputs(turn)).encode("utf-8", "replace"), digest_size=16).digest()
        if (before := last.get(digest)) is not None:
            yield _suggestion(session, "repeated", _with_calls(session, before), "the same output comes again later")
        last[digest] = turn


def _unused_outputs(session: Transcript) -> Iterator[Suggestion]:
    """Suggest long tool outputs if no later turn mentions a name (of a file or function) in them."""
    mentioned: set[str] = set()
    for turn in reversed(session.turns):
        if turn.is_parents:
            break
        if turn.tool_results:
            names = set(_NAME.findall("\n".join(_outputs(turn)))[: _MAX_NAMES * 8])
            if turn.token_est >= MIN_UNUSED_TOKENS and mentioned and names.isdisjoint(mentioned):
                yield _suggestion(
                    session, "unused", _with_calls(session, turn), "a long output without a later reference"
                )
        elif turn.role in ("user", "assistant"):
            mentioned.update(name for text in _texts(turn) for name in _NAME.findall(text)[:_MAX_NAMES])


def _secrets(session: Transcript) -> Iterator[Suggestion]:
    for turn in session.own:
        if kinds := sorted(set(secrets_in(turn.raw))):
            command = f"smart-fork excise cut --secrets --id {quote(turn.id)} {quote(session.session_id)}"
            yield Suggestion(
                "secret", _range(session, {turn.id}), (turn.id,), f"holds a secret ({', '.join(kinds)})", 0, command
            )


def _suggestion(session: Transcript, kind: str, ids: Collection[str], reason: str) -> Suggestion:
    gone = closure(session.turns, ids)
    turns = [turn for turn in session.turns if turn.id in gone]
    numbers = _range(session, gone)
    saved = sum(turn.token_est for turn in turns)
    known = {turn.id for turn, number in zip(session.turns, session.numbers, strict=True) if number is not None}
    others = [word for turn in turns if turn.id not in known for word in ("--id", quote(turn.id))]
    command = " ".join(filter(None, ("smart-fork excise cut", numbers, *others, quote(session.session_id))))
    return Suggestion(kind, numbers, tuple(turn.id for turn in turns), reason, saved, command)


def _with_calls(session: Transcript, turn: TranscriptTurn) -> list[str]:
    """Return the ids of the turns to cut in order to remove the tool results of `turn`.

    A result is cut with its call, so these are the turns with no other calls; if there is none, `turn` itself.
    """
    wanted = {result.tool_use_id for result in turn.tool_results}
    calls = [one for one in session.turns if one.tool_calls and {call.id for call in one.tool_calls} <= wanted]
    return [one.id for one in calls] or [turn.id]


def _range(session: Transcript, ids: Collection[str]) -> str:
    named = {number for number, turn in zip(session.numbers, session.turns, strict=True) if turn.id in ids}
    parts: list[list[int]] = []
    for number in sorted(number for number in named if number is not None):
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def _texts(turn: TranscriptTurn) -> list[str]:
    return [text for _, record in decode_line(turn.raw)[0] for text in searchable_texts(record)]


def _outputs(turn: TranscriptTurn) -> Sequence[str]:
    """Return the texts of a turn's tool results, without their copies in other fields of the record."""
    found = []
    for _, record in decode_line(turn.raw)[0]:
        message = record.get("message") or record.get("payload") or record.get("bubble")
        found += list(searchable_texts(message if isinstance(message, dict) else record))
    return found
