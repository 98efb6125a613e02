"""The form of session ids on command lines: a check, and a short form."""

from __future__ import annotations

import re

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{7,127}")


def is_id(text: str) -> bool:
    """Return True if `text` can be a session's id on a command line."""
    return _ID.fullmatch(text) is not None


def short(session_id: str) -> str:
    """Return the beginning of a session's id: 8 characters, or 13 if it begins with a time."""
    return session_id[: 13 if session_id[14:15] == "7" or "_" in session_id else 8]
