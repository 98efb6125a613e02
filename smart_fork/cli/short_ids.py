"""Ids and titles from session logs, shortened or cleaned so that a shell can safely evaluate them."""

from __future__ import annotations

import re

#: Allowed characters beside letters and digits: none of them has a meaning for a shell, a pattern or a completion.
_PLAIN = " .,_-/+@"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{7,127}")


def harmless(text: str, limit: int) -> str:
    """Return `text` on one line of at most `limit` characters, without those that a shell could interpret."""
    plain = "".join(one if one.isalnum() or one in _PLAIN else " " for one in text[: 4 * limit])
    words = " ".join(plain.split())
    return words if len(words) <= limit else words[: limit - 1].rstrip() + "…"


def is_id(text: str) -> bool:
    """Return True if `text` can be a session's id on a command line."""
    return _ID.fullmatch(text) is not None


def short(session_id: str) -> str:
    """Return the beginning of a session's id: 8 characters, or 13 if it begins with a time."""
    return session_id[: 13 if session_id[14:15] == "7" or "_" in session_id else 8]
