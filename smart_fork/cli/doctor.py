"""How ``doctor`` looks."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from smart_fork.cli.output import out, plain
from smart_fork.doctor import Check


def print_checks(checks: Sequence[Check]) -> None:
    """One line a part, and what to do about those that fail."""
    for check in checks:
        mark, style = ("ok", "green") if check.ok else ("--", "yellow") if check.optional else ("NO", "bold red")
        out.print(Text(f"{mark}  ", style=style), plain(f"{check.name:<16} {check.detail}"), sep="")
        if check.next_step:
            out.print(plain(f"      {check.next_step}"))
