"""Cuts as people ask for them: a shared session that still has what was cut is named as a file would be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from indexer.changes import Progress
from smart_fork.cuts.answer import Excised, NotFollowed, Soundness
from smart_fork.excise import request, soundness
from smart_fork.excise.request import Agree, Request
from smart_fork.team.still_shared import still_shared


def cut(wanted: Request, *, agree: Agree = lambda _plan: True, progress: Progress | None = None) -> Excised:
    """Cut turns out of a transcript (see `request.cut`)."""
    outcome = request.cut(wanted, agree=agree, progress=progress)
    if outcome.left is None:
        return outcome
    shared = still_shared(Path(outcome.path), outcome.tool)
    left = (*outcome.left, *(NotFollowed(one.path, one.reason) for one in shared))
    return replace(outcome, left=left, erased=outcome.erased and not left)


def check(reference: str | None, tool: str = "auto") -> Soundness:
    """Look whether a transcript is whole, and where anything of its cuts is still found (see `soundness.check`)."""
    found = soundness.check(reference, tool)
    shared = still_shared(Path(found.path), found.tool)
    return replace(found, copies=(*found.copies, *shared), ok=found.ok and not shared)
