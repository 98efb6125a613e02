"""Workers compared, as one file: what the page shows of them, by the same template. It loads and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from smart_fork.page.export import write_private
from smart_fork.page.renderer import Shown, written
from smart_fork.page.statics import own_style
from smart_fork.workers.state import Compared


def side_by_side(workers: Sequence[Compared]) -> Shown:
    """Workers, and the prompts that they were given."""
    return {"compared": workers, "prompts": list(dict.fromkeys(one.prompt for one in workers if one.prompt))}


def page(workers: Sequence[Compared]) -> str:
    """The file: a column for each worker."""
    return written("comparison.html", side_by_side(workers), {"style": own_style()})


def write_page(workers: Sequence[Compared], path: Path) -> None:
    """Write the page to a private file; what is there is replaced, and a symbolic link is not followed.

    Raises:
        SmartForkError: it cannot be written.
    """
    write_private(path, page(workers), force=True)
