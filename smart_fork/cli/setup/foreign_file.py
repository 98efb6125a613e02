"""Changes to files of other programs, such as an agent's settings, which can be undone to the byte."""

from __future__ import annotations

import stat
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import takewhile
from pathlib import Path

from indexer.lazy_compilation import dataclass
from indexer.safe_files import private_dir, replace_file, sweep_beside
from smart_fork.agents.mcp_registration import UnsuitableError
from smart_fork.errors import SmartForkError


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a file's text: at the position `at`, in characters, `now` replaced `was`.

    `before` and `after` are digests of the whole text (empty without a file). They show whether the text was changed
    again: then the edit cannot be undone to the byte.
    """

    at: int
    was: str
    now: str
    before: str
    after: str

    @classmethod
    def of(cls, before: str | None, after: str) -> Edit:
        """Return the edit that turns `before` (`None` without a file) into `after`."""
        old = before or ""
        at = _common_prefix(old, after)
        shared = _common_prefix(old[at:][::-1], after[at:][::-1])
        was, now = old[at : len(old) - shared], after[at : len(after) - shared]
        return cls(at, was, now, digest(before), digest(after))

    def is_in(self, text: str | None) -> bool:
        """Return True if `text` is exactly the result of this edit."""
        return digest(text) == self.after

    def never_came(self, text: str | None) -> bool:
        """Return True if `text` is exactly the text before this edit, so that there is nothing to undo."""
        return digest(text) == self.before

    def undone(self, text: str) -> str | None:
        """Return the text before this edit, made from its result `text`; `None` if there was no file."""
        if not self.before:
            return None
        return text[: self.at] + self.was + text[self.at + len(self.now) :]


def _common_prefix(one: str, other: str) -> int:
    """Return the number of characters at the beginning that are equal in both texts."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def digest(text: str | None) -> str:
    """Return the digest (a hash) of `text`; empty for `None`, which means no file."""
    return "" if text is None else sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@contextmanager
def write_errors(path: Path, how: str) -> Iterator[None]:
    """Turn an `OSError` inside the context into a `SmartForkError`: `path` cannot be `how` ("written", "removed")."""
    try:
        yield
    except OSError as error:
        raise SmartForkError(f"{path} cannot be {how}: {error.strerror}", "Check the owner of the folder.") from error


def remove_leftovers(path: Path, folders: list[Path]) -> None:
    """Remove temporary files that a killed process left beside `path`, and each of `folders` that is empty."""
    sweep_beside(path.resolve())
    for folder in reversed(folders):
        with suppress(OSError):
            folder.rmdir()


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A text file of another program, such as an agent's settings. Errors have the hint `next_step`.

    It is written only if its text has not changed since it was read, and never if it is read-only. Links, mode, owner
    and byte-order mark stay. An empty JSON file counts as an empty object, because agents read it so.
    """

    path: Path
    next_step: str = ""

    def read(self) -> str | None:
        """Return the text of the file; `None` if there is no file.

        Raises:
            SmartForkError: the file cannot be read, or is not UTF-8.
        """
        try:
            return self._text(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SmartForkError(f"{self.path} cannot be read: {error.strerror}", self.next_step) from error
        except ValueError as error:
            raise SmartForkError(f"{self.path} is not UTF-8, and was not changed", self.next_step) from error

    def write(self, before: str | None, text: str | None) -> None:
        """Write `text`, or delete the file if it is `None`, but only if the file's text is still `before`.

        Raises:
            SmartForkError: another program has changed the file, or it cannot be written.
        """
        target = self.path.resolve()
        try:
            now = target.read_bytes() if target.exists() else None
            if (None if now is None else self._text(now)) != before:
                raise SmartForkError(f"{self.path} has just been changed by another program", "Try again.")
            self.check_writable()
            if text is None:
                target.unlink()
                return
            private_dir(target.parent)
            mark = BOM_UTF8 if now and now.startswith(BOM_UTF8) else b""
            replace_file(target, [mark, text.encode()], like_before=True)
        except OSError as error:
            step = "Check the owner of the file."
            raise SmartForkError(f"{self.path} cannot be written: {error.strerror}", step) from error

    def check_writable(self) -> None:
        """Refuse a file that its owner has made read-only, even if this user could write it.

        Raises:
            SmartForkError: the file is read-only.
        """
        target, step = self.path.resolve(), f"Make it writable (chmod u+w {self.path})."
        if target.is_file() and not target.stat().st_mode & stat.S_IWUSR:
            raise SmartForkError(f"{self.path} is read-only, and was not changed", step)

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Turn an `UnsuitableError` (settings with an unknown form) inside the context into a `SmartForkError`."""
        try:
            yield
        except UnsuitableError as error:
            raise SmartForkError(f"{self.path} was not changed: {error}", self.next_step) from error

    def _text(self, content: bytes) -> str:
        text = content.removeprefix(BOM_UTF8).decode()
        return text if text.strip() or self.path.suffix != ".json" else "{}"
