"""Workers compared, as one file: what the page shows of them, by the same template. It loads and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from indexer.shapes import dataclass
from smart_fork.page.export import write_private
from smart_fork.page.renderer import PageValues, written
from smart_fork.page.statics import OwnStyle, own_style
from smart_fork.workers.compared import Compared


@dataclass(frozen=True, slots=True)
class ComparisonFile(PageValues):
    """Workers side by side, the prompts that they were given, and the style sheets of the file."""

    compared: tuple[Compared, ...]
    prompts: tuple[str, ...]
    style: OwnStyle


def page(workers: Sequence[Compared]) -> str:
    """The file: a column for each worker."""
    prompts = tuple(dict.fromkeys(one.prompt for one in workers if one.prompt))
    return written("comparison.html", ComparisonFile(tuple(workers), prompts, own_style()))


def write_page(workers: Sequence[Compared], path: Path) -> None:
    """Write the page to a private file; what is there is replaced, and a symbolic link is not followed.

    Raises:
        SmartForkError: it cannot be written.
    """
    write_private(path, page(workers), force=True)
