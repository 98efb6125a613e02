"""Values of decoded JSON that nobody has checked: one of another type counts as an empty one."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import orjson


def dict_in(value: object) -> dict[str, Any]:
    """Return an object; an empty one for all else."""
    return value if isinstance(value, dict) else {}


def list_in(value: object) -> list[Any]:
    """Return a list; an empty one for all else."""
    return value if isinstance(value, list) else []


def dicts_in(value: object) -> list[dict[str, Any]]:
    """Return the objects in a list; nothing if it is not a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text_in(value: object) -> str:
    """Return a text; an empty one for all else."""
    return value if isinstance(value, str) else ""


def json_in(text: bytes | str) -> Any:
    """Decode JSON; `None` if it is not JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def json_at(path: Path) -> Any:
    """Decode the JSON in a file; `None` if it cannot be read, or is not JSON. A pipe is not waited for."""
    try:
        return json_in(path.read_bytes()) if path.is_file() else None
    except OSError:
        return None


def seconds_in(moment: str) -> float | None:
    """Return a moment in ISO 8601 as seconds since 1970; `None` if it is not one."""
    try:
        return datetime.fromisoformat(moment).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
