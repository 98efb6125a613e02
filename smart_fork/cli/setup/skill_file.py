"""The skill in a folder that an agent reads: planned, written, and taken away again."""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from pathlib import Path

from indexer.transcripts.model import AgentName
from smart_fork.agents.registration import Registration
from smart_fork.cli.setup import foreign_files
from smart_fork.cli.setup.ledger import Edit, Ledger, LedgerLine, Step, take_away

SKILL = "past-sessions"
NAME = f"skill {SKILL}"


def content() -> str:
    """The skill's text."""
    return files("smart_fork.cli.setup").joinpath("skill/SKILL.md").read_text(encoding="utf-8")


def planned(way: Registration, folder: Path, ledger: Ledger) -> Step:
    """The step that gives an agent the skill, in its `folder`. One that is not as we have left it is somebody's.

    Raises:
        SmartForkError: what is there cannot be read.
    """
    path = folder / SKILL / "SKILL.md"
    text = _read(path)
    line = ledger.of("skill", way.agent, path)
    step = partial(Step, "skill", NAME, str(path), agent=way.agent)
    if text == content():
        return step(state="there")
    if text is not None and not (line and line.edit and line.edit.is_in(text)):
        return step(state="left", why="another skill has this name, or you changed it")
    return step(state="new" if text is None else "changed", act=partial(_written, way.agent, path))


def _written(agent: AgentName, path: Path, ledger: Ledger) -> list[str]:
    ledger.begin(LedgerLine(what="skill", agent=agent, path=path, edit=Edit.of(None, content())))
    foreign_files.write(path, _read(path), content())
    return []


def undo(line: LedgerLine) -> list[str]:
    """Take it away, unless somebody has changed it.

    Raises:
        SmartForkError: it cannot be taken away.
    """
    text, notes = _read(line.path), []
    if text is not None and line.edit is not None:
        if line.edit.is_in(text):
            foreign_files.write(line.path, text, None)
        else:
            notes = [f"{line.path} stays: you changed it"]
    take_away(line.path, line.folders)
    return notes


def standing(line: LedgerLine) -> str:
    """Describe the differences from what setup left; empty if none."""
    text = _read(line.path)
    if text is None:
        return f"the skill {line.path} is gone"
    return "" if line.edit and line.edit.is_in(text) else f"the skill {line.path} was changed"


def _read(path: Path) -> str | None:
    return foreign_files.read(path, f"Make {path} readable, or skip it with --no-skill.")
