"""Files that belong to others: read as text, and written only if they still are what was read.

A link stays one: what it points to is written. Mode, owner and a byte-order mark stay. What its owner has made
read-only is not written. An empty JSON file is an empty object, as the agents read it.
"""

from __future__ import annotations

import stat
from codecs import BOM_UTF8
from pathlib import Path

from indexer.safe_files import private_dir, replace_file
from smart_fork.errors import SmartForkError


def read(path: Path, by_hand: str) -> str | None:
    """The text of `path`, `None` where there is no such file. `by_hand` is the next step that an error names.

    Raises:
        SmartForkError: it cannot be read, or is no UTF-8.
    """
    try:
        return _text(path, path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SmartForkError(f"{path} cannot be read: {error.strerror}", by_hand) from error
    except ValueError as error:
        raise SmartForkError(f"{path} is not UTF-8, and was not changed", by_hand) from error


def write(path: Path, before: str | None, text: str | None) -> None:
    """Write `text`, or with `None` delete the file, if it still is `before`. Folders that are missing are made.

    Raises:
        SmartForkError: somebody else has changed it meanwhile, or it cannot be written; it is as it was.
    """
    target = path.resolve()
    try:
        now = target.read_bytes() if target.exists() else None
        if (None if now is None else _text(path, now)) != before:
            raise SmartForkError(f"{path} has just been changed by another program", "Try again.")
        check_writable(path)
        if text is None:
            target.unlink()
            return
        private_dir(target.parent)
        mark = BOM_UTF8 if now and now.startswith(BOM_UTF8) else b""
        replace_file(target, [mark, text.encode()], like_before=True)
    except OSError as error:
        raise SmartForkError(f"{path} cannot be written: {error.strerror}", "Check the owner of the file.") from error


def _text(path: Path, content: bytes) -> str:
    text = content.removeprefix(BOM_UTF8).decode()
    return text if text.strip() or path.suffix != ".json" else "{}"


def check_writable(path: Path) -> None:
    """Refuse a file that is there and that its owner has made read-only, also to who could write it nevertheless.

    Raises:
        SmartForkError: it is read-only.
        OSError: it cannot be looked at.
    """
    target = path.resolve()
    if target.is_file() and not target.stat().st_mode & stat.S_IWUSR:
        raise SmartForkError(f"{path} is read-only, and was not changed", f"Make it writable (chmod u+w {path}).")
