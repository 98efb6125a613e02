"""Help pages: two examples for each command, and the options of long pages in groups."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

#: Pages with fewer options stay in one group.
_MANY = 9
_SEARCH, _FORK, _RUN, _OUTPUT = "Where to search", "What to fork", "How it runs", "Options"
_GROUPS: Mapping[str, str] = {
    **dict.fromkeys(("--agent", "--project", "--all-projects", "--team", "--include-automated", "--server"), _SEARCH),
    **dict.fromkeys(("--at", "--intent", "--also", "--top", "--min-score", "--budget", "--keep", "--drop"), _FORK),
    **dict.fromkeys(
        ("--merge", "--as", "--unmasked", "--fork-from", "--resume", "--continue", "--fork", "--excise"), _FORK
    ),
    **dict.fromkeys(("--worktree", "--worktree-name", "--with-changes", "--in", "--cwd", "--name", "--start"), _RUN),
    **dict.fromkeys(("--skip-permissions", "--brief"), _RUN),
    **dict.fromkeys(("--json", "--dry-run", "--explain", "--limit", "--no-snippets", "--yes", "--help"), _OUTPUT),
}


@cache
def examples(path: str = "") -> tuple[str, ...]:
    """Return the examples of a command, or of the commands in a group: two at most. Without a `path` it is all of them.

    Their session is one of the demo, so that they can be tried there.
    """
    lines = files("smart_fork.cli").joinpath("examples.txt").read_text(encoding="utf-8").splitlines()
    return tuple(one for one in lines if f"{one} ".startswith(f"{path} "))[:2] if path else tuple(lines)


def dress(command: Any, path: str) -> None:
    """Add its examples to a click command's help, and group its options."""
    if path and (shown := examples(path)):
        command.epilog = "\n\n".join(("Examples:", *(f"  smart-fork {one}" for one in shown)))
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    if path and len(options) >= _MANY:
        for one in options:
            one.rich_help_panel = next((_GROUPS[name] for name in one.opts if name in _GROUPS), "Options")
