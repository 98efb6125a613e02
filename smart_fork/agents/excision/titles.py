"""Marks: keyed digests that stand for text in the log of cuts, which must not contain the removed text itself.

The mark of a removed prompt shows which titles quote it, in the session and in its copies; other marks name records
without ids. The key stays in smart-fork's folder, so that guessed words cannot be tested against the log alone.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b

from indexer.safe_files import private_dir, state_home, write_new
from indexer.transcripts.texts import strip_boilerplate, title_of

_SUFFIX = re.compile(r"(\s*\(Branch(?: \d+)?\))+$", re.IGNORECASE)
_PREFIX = "title:"
#: Titles are made from at most this many characters of a prompt.
_PROMPT_CHARACTERS = 1 << 16


def without_suffix(title: str) -> str:
    """Return the title without a suffix such as "(Branch 2)", and so the title of the session that was branched."""
    return _SUFFIX.sub("", title).strip()


def comparable_title(title: str) -> str:
    """Return the title without differences in case and whitespace."""
    return " ".join(title.split()).casefold()


def mark_of_prompt(prompt: str) -> tuple[str, ...]:
    """Return the mark (keyed digest) that a prompt shares with titles that quote it; empty for a program's prompt."""
    said = strip_boilerplate(prompt[:_PROMPT_CHARACTERS])
    return (_mark(title_of("", (said,))),) if said.strip() else ()


def mark_of_title(title: object) -> tuple[str, ...]:
    """Return the mark (keyed digest) that a title shares with the prompt that it quotes; empty without a title."""
    return (_mark(without_suffix(title)),) if isinstance(title, str) and title.strip() else ()


def marks(keys: Iterable[str]) -> set[str]:
    """Return those of `keys` (see `TranscriptTurn.says`) that are marks of titles."""
    return {one for one in keys if one.startswith(_PREFIX)}


def _mark(title: str) -> str:
    return f"{_PREFIX}{mark(comparable_title(title).encode('utf-8', 'surrogatepass'))}"


_FILE, _BYTES = "marks.key", 32
#: The key of a process that has not saved a key.
_PASSING = secrets.token_bytes(_BYTES)
_KNOWN: dict[tuple[str | None, ...], bytes] = {}


def mark(data: bytes) -> str:
    """Return the keyed digest of `data`."""
    return blake2b(data, key=_digest_key(), digest_size=16).hexdigest()


def keep_key() -> None:
    """Save a key for the digests unless there is one, so that other processes make the same marks from now on."""
    with suppress(FileExistsError):
        write_new(private_dir(state_home()) / _FILE, [secrets.token_bytes(_BYTES)])


def _digest_key() -> bytes:
    home = tuple(map(os.environ.get, ("SMART_FORK_HOME", "HOME")))  # asked for each record: no `Path` is made for that
    if home not in _KNOWN:
        try:
            _KNOWN[home] = (state_home() / _FILE).read_bytes()[: blake2b.MAX_KEY_SIZE]
        except OSError:
            return _PASSING
    return _KNOWN[home]
