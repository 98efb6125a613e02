"""A change of a file."""

from __future__ import annotations

from indexer.values import Value, value


@value
class FileChange(Value):
    """One file that differs. `added` and `removed` count lines, and are `None` for what is not text."""

    path: str
    added: int | None
    removed: int | None

    def counted(self) -> str:
        """Describe the number of changed lines."""
        return "binary" if self.added is None else f"+{self.added} -{self.removed}"
