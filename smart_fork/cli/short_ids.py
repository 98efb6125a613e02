"""Words of logs in places where a shell looks at them again."""

from __future__ import annotations

import re

#: Beside letters and digits of any language; nothing that a shell, a pattern or a completion takes for its own.
_PLAIN = " .,_-/+@"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{7,127}")


def harmless(text: str, limit: int) -> str:
    """At most `limit` characters of `text` on one line, of which no shell understands any."""
    plain = "".join(one if one.isalnum() or one in _PLAIN else " " for one in text[: 4 * limit])
    words = " ".join(plain.split())
    return words if len(words) <= limit else words[: limit - 1].rstrip() + "…"


def is_id(text: str) -> bool:
    """Return True if it can be given on a command line as an id."""
    return _ID.fullmatch(text) is not None


def short(session_id: str) -> str:
    """As much of an id as tells sessions apart: random ones early, and those that begin with the time late."""
    return session_id[: 13 if session_id[14:15] == "7" or "_" in session_id else 8]
