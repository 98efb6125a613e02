"""Makes the turn of a transcript that is cut, from what its record says."""

from __future__ import annotations

from collections.abc import Iterable
from sys import intern
from typing import Any

from indexer.transcripts.items import Item
from indexer.transcripts.model import Role
from smart_fork.cuts import titles
from smart_fork.cuts.lines import preview, tokens
from smart_fork.cuts.model import Call, Result, TranscriptTurn


def turn_of(
    identity: str, role: Role, said: str, item: Item, *,
    prompt: bool, note: str = "", says: Iterable[str] = (), counts: bool = True, **more: Any,
) -> TranscriptTurn:  # fmt: skip
    """Return the turn of a record that has this item and `said` this.

    `note` is the preview of a record that says nothing. `says` are further keys under which other lines repeat it. A
    record that does not count takes no tokens. `more` are other fields of the turn.
    """
    calls = tuple(Call(intern(call.id), intern(call.name)) for call in item.calls)
    outputs = [result.output for result in item.results]
    size = len(said) + sum(map(len, outputs)) + sum(len(str(call.given)) for call in item.calls if call.given)
    keys = (f"turn:{identity}", *(f"call:{call.id}" for call in calls if call.id), *says)
    return TranscriptTurn(
        id=identity,
        role=role,
        preview=preview(said or note, [call.name for call in calls], outputs, prompt=prompt),
        token_est=tokens(size, len(calls)) if counts else 0,
        tool_calls=calls,
        tool_results=tuple(Result(intern(result.id)) for result in item.results),
        says=(*keys, *(titles.made_of(said) if prompt else ())),
        prompt=prompt,
        **more,
    )
