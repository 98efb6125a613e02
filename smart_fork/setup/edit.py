"""One change of a text, small enough to be kept, and undone to the byte where the text has not been changed since."""

from __future__ import annotations

from hashlib import sha256

from indexer.shapes import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """`was` has become `now` at the character `at`. The digests are of the whole texts, before and after.

    A text that was not there has no digest.
    """

    at: int
    was: str
    now: str
    before: str
    after: str

    @classmethod
    def of(cls, before: str | None, after: str) -> Edit:
        """What makes `after` of `before`."""
        old = before or ""
        at = _shared(old, after)
        shared = _shared(old[at:][::-1], after[at:][::-1])
        was, now = old[at : len(old) - shared], after[at : len(after) - shared]
        return cls(at, was, now, digest(before), digest(after))

    def is_in(self, text: str | None) -> bool:
        """Whether `text` is still what it was made."""
        return digest(text) == self.after

    def never_came(self, text: str | None) -> bool:
        """Whether `text` is what it was before."""
        return digest(text) == self.before

    def undone(self, text: str) -> str | None:
        """What was there before `text`, in which the edit is; `None` where there was nothing."""
        if not self.before:
            return None
        return text[: self.at] + self.was + text[self.at + len(self.now) :]


def _shared(one: str, other: str) -> int:
    """How many characters both begin with."""
    shared, longest = 0, min(len(one), len(other))
    while shared < longest:  # halved: settings may be megabytes
        half = (shared + longest + 1) // 2
        shared, longest = (half, longest) if one[:half] == other[:half] else (shared, half - 1)
    return shared


def digest(text: str | None) -> str:
    """The digest of a text, empty where there is none."""
    return "" if text is None else sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
