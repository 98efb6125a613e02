"""Masks secrets in log records: passwords, keys and tokens become ``[REDACTED:<kind>]``.

An id that links records cannot be masked: if it looks like a secret, its record is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import orjson

from indexer.masking.rules import MARK, SHAPE, Span
from indexer.masking.secrets import hidden_in_parts, key_lines, lines_at, masked_spans, spans_of, together
from smart_fork.agents.decoders import Record
from smart_fork.agents.excision.transcript import MAX_DEPTH, is_fixed_field, searchable_texts
from smart_fork.agents.portable_records import Converter
from smart_fork.errors import Unshareable

_MASK = re.compile(r"\[REDACTED:([a-z0-9-]{1,40})\]")
#: Names that mark the value beside them, or the next argument of a program, as secret.
_TELLING = re.compile(r"(?i)pass|pw|secret|token|key|auth|bearer|value|credential|cookie|header")
#: Endings of field names with unreadable values: signed, encrypted, or images.
_OPAQUE = ("signature", "encrypted_content", "base64")
#: The shortest secret that is searched for in names; a shorter one could be any word.
_LEAST = 4
#: Masked texts to remember, and the length from which: records repeat a tool's output for display.
_REMEMBERED, _LONG = 64, 200
OWN = "own-pattern"
CONTEXT = 40
SAMPLES = 5


@dataclass
class MaskedSecrets:
    """Counts of masked secrets by kind, with a few masked excerpts around secrets of each kind."""

    #: Linking fields that may be masked, since nothing depends on them on another machine.
    MASKABLE_TIES: ClassVar = frozenset({"cwd", "gitBranch"})

    kinds: Counter[str] = field(default_factory=Counter)
    samples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, before: str, after: str) -> None:
        """Count the masks that `after` has and `before` (the same text before masking) lacks."""
        self.kinds.update(_MASK.findall(after))
        self.kinds.subtract(_MASK.findall(before))
        for mask in _MASK.finditer(after):
            shown = self.samples.setdefault(mask[1], [])
            sample = after[max(0, mask.start() - CONTEXT) : mask.end() + CONTEXT]
            if len(shown) < SAMPLES and sample not in shown:
                shown.append(sample)


class RecordMasker:
    """Masks secrets in texts and log records, by known patterns and the user's in `redact`, except texts in `allow`."""

    def __init__(self, redact: Sequence[str] = (), allow: Sequence[str] = ()) -> None:
        self._own = [re.compile(pattern) for pattern in redact]
        self._allowed = [text for text in allow if text]
        self._known: set[str] = set()
        self._found: dict[str, str] = {}
        self._long = lru_cache(_REMEMBERED)(self._masked)

    def text(self, text: str) -> str:
        """Return a text with its secrets masked. Masking it again changes nothing."""
        return self._long(text) if len(text) > _LONG else self._masked(text)

    def name(self, text: str) -> str:
        """Return a session's title with its secrets masked, also those found earlier in the session's records."""
        text = self.text(text)
        spans = [
            Span(at.start(), SHAPE, at.end(), kind)
            for one, kind in self._found.items() if one in text
            for at in re.finditer(rf"(?<!\w){re.escape(one)}(?!\w)", text)
        ]  # fmt: skip
        return masked_spans(text, spans)

    def learn(self, records: Iterable[Record]) -> None:
        """Remember the lines of all private keys in `records`, so that they are masked wherever they occur.

        An edit may show single lines of a key, without the heading by which a key is recognized.
        """
        for record in records:
            self._known |= key_lines(orjson.dumps(record).decode())
        self._long.cache_clear()

    def lines(self, parts: list[str]) -> tuple[str, str, list[str]]:
        """Mask the text of the lines `parts`. Return the text, the masked text and the masked lines."""
        text = "\n".join(parts)
        return text, self.text(text), hidden_in_parts(parts, self._spans(text))

    def record(self, record: Record, converter: Converter, found: MaskedSecrets) -> Record | None:
        """Return a record with its secrets masked, counted in `found`; `None` if the record is dropped.

        A thought with a secret is removed; a record with nothing else is dropped. `converter` describes the agent's
        records.

        Raises:
            Unshareable: an id, or a field name that the agent does not define, looks like a secret.
        """
        thoughts = converter.without_thoughts(record, lambda thought: self._has_secret(thought, found))
        return None if thoughts is None else _Walk(self, converter, found).value(thoughts, "", free=False)

    def is_masked(self, record: Record, data: bytes, converter: Converter) -> bool:
        """Return True if masking a masked record again changes nothing. `data` is the record as bytes."""
        return MARK.encode() not in data or self.record(record, converter, MaskedSecrets()) == record

    def _has_secret(self, thought: Record, found: MaskedSecrets) -> bool:
        said = list(searchable_texts(thought, _is_unread))
        new = [self.text(text) for text in said]
        for before, after in zip(said, new, strict=True):
            if before != after:
                found.add(before, after)
        return said != new

    def _masked(self, text: str) -> str:
        while spans := self._spans(text):
            secrets = {text[one.start : one.end]: one.kind for one in spans}
            self._found |= {one: kind for one, kind in secrets.items() if len(one) >= _LEAST and MARK not in one}
            text = masked_spans(text, spans)
        return text

    def _spans(self, text: str) -> list[Span]:
        spans = spans_of(text)
        spans += lines_at(text, self._known)
        if self._own:
            masks = [mask.span() for mask in _MASK.finditer(text)] if MARK in text else []
            for pattern in self._own:
                own = [one.span() for one in pattern.finditer(text) if one.end() > one.start()]
                spans += [Span(a, SHAPE, b, OWN) for a, b in own if not any(c < b and a < d for c, d in masks)]
        if spans and self._allowed:
            allowed = [found.span() for one in self._allowed for found in re.finditer(re.escape(one), text)]
            spans = [one for one in spans if not any(a <= one.start and one.end <= b for a, b in allowed)]
        return spans


class _Walk:
    """One pass over a log record that masks all texts in it."""

    def __init__(self, secrets: RecordMasker, converter: Converter, found: MaskedSecrets) -> None:
        self._secrets, self._text = secrets, secrets.text
        self._converter, self._found = converter, found

    def value(self, value: Any, name: str, *, free: bool, depth: int = 0) -> Any:
        """Return the value of the field `name`, with all texts in it masked.

        Usually a field's name tells whether its value is a text or an id. In `free` fields (such as tool inputs), all
        are texts.
        """
        if isinstance(value, str):
            return self._of_field(value, name, free=free)
        if depth >= MAX_DEPTH or not isinstance(value, dict | list):
            return value
        entering = not free and name in self._converter.free
        free = free or entering
        if isinstance(value, list):
            parts = together(value, self._as_one, _is_opaque if free else _is_fixed)
            new: Any = [self.value(part, "", free=free, depth=depth + 1) for part in parts]
        else:
            new = {
                (self._changed(key) if free else key): self.value(part, key, free=free, depth=depth + 1)
                for key, part in value.items()
            }
        return self._in_context(new) if entering else new

    def _as_one(self, parts: list[str]) -> list[str]:
        before, after, masked = self._secrets.lines(parts)
        self._found.add(before, after)
        return masked

    def _of_field(self, value: str, name: str, *, free: bool) -> str:
        if _is_opaque(name) or (name == "data" and not free) or (name == "data" and len(value) > 1_000):
            return value
        if free or name in MaskedSecrets.MASKABLE_TIES or not is_fixed_field(name, value):
            return self._json(value) if value.startswith(("{", "[")) else self._changed(value)
        if self._text(value) != value:
            raise Unshareable(f"A possible secret is in a place that cannot be masked: {name}")
        return value

    def _changed(self, text: str) -> str:
        new = self._text(text)
        if new != text:
            self._found.add(text, new)
        return new

    def _json(self, text: str) -> str:
        """Return a text with its secrets masked. JSON stays JSON: each value in it is masked separately."""
        new = self._text(text)
        if new == text:
            return text
        try:
            inner = orjson.loads(text)
        except orjson.JSONDecodeError:
            return self._changed(text)
        walked = self._in_context(self.value(inner, "", free=True, depth=1))
        return self._changed(orjson.dumps(walked).decode())

    def _in_context(self, value: Any) -> Any:
        """Return a tool's masked input, with values masked next to names that mark them as secret ("password")."""
        if not _tells(value):
            return value
        for spelled in _spellings(value):
            if self._text(spelled) != spelled:
                break
        else:
            return value
        return _NamedSecrets(self._text, self._found).value(value)


class _NamedSecrets:
    """Masks values that are secret because of a name next to them, such as "password", by checking both together."""

    def __init__(self, text: Callable[[str], str], found: MaskedSecrets) -> None:
        self._text, self._found = text, found

    def value(self, value: Any) -> Any:
        if isinstance(value, list):
            return self._listed([self.value(part) for part in value])
        if not isinstance(value, dict):
            return value
        new = {name: self.value(part) for name, part in value.items()}
        named = next((new[name] for name in ("name", "key", "id", "property") if isinstance(new.get(name), str)), "")
        for name, part in new.items():
            if isinstance(part, str | int) and not isinstance(part, bool):
                new[name] = self._beside(name, part, named if name.lower() == "value" else "")
        return new

    def _beside(self, name: str, value: str | int, named: str) -> str | int:
        for beside in filter(None, (name, named)):
            pair = orjson.dumps({beside: str(value)}).decode()
            if (new := self._text(pair)) != pair:
                self._found.add(pair, new)
                return _MASK.search(new)[0]  # type: ignore[index]
        return value

    def _listed(self, values: list[Any]) -> list[Any]:
        """Return a list of program arguments, with each argument after an option such as ``--token`` masked."""
        for position in range(len(values) - 1):
            first, second = values[position : position + 2]
            if isinstance(first, str) and isinstance(second, str) and _TELLING.search(first):
                for joined in (f"{first} {second}", f"{first}={second}"):
                    new = self._text(joined)
                    if new != joined and new.startswith(first) and not _MASK.fullmatch(second):
                        self._found.add(joined, new)
                        values[position + 1] = _MASK.search(new)[0]  # type: ignore[index]
                        break
        return values


def _is_opaque(name: str, _: Any = None) -> bool:
    return name.lower().endswith(_OPAQUE)


def _is_fixed(name: str, value: Any) -> bool:
    return _is_opaque(name) or is_fixed_field(name, value)


def _tells(value: Any, depth: int = 0) -> bool:
    """Return True if `value` contains a name, such as "password", that can mark a value next to it as secret."""
    if depth >= MAX_DEPTH:
        return False
    if isinstance(value, dict):
        return any(_TELLING.search(name) or _tells(part, depth + 1) for name, part in value.items())
    if isinstance(value, list):
        return any(
            _tells(part, depth + 1) if not isinstance(part, str) else len(part) < _LONG and _TELLING.search(part)
            for part in value
        )
    return False


def _spellings(value: Any) -> Iterator[str]:
    yield orjson.dumps(value).decode()
    yield " ".join(searchable_texts(value, _is_unread))
    yield "=".join(searchable_texts(value, _is_unread))


def _is_unread(name: str, _: object) -> bool:
    return _is_opaque(name) or name == "data"
