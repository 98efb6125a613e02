"""A patch as lines to be shown. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from indexer.shapes import dataclass


@dataclass(frozen=True, slots=True)
class PatchLine:
    """A line of a patch: `added`, `removed`, a `heading`, where it is `at`, or none of these."""

    text: str
    kind: str


def patch_lines(patch: str) -> Iterator[PatchLine]:
    """The lines of a patch."""
    kinds = {"+": "added", "-": "removed", "@": "at"}
    inside = False
    for line in patch.split("\n"):
        if line.startswith("diff --git "):
            inside = False
        inside = inside or line.startswith("@@")
        yield PatchLine(line, kinds.get(line[:1], "") if inside else "heading")
