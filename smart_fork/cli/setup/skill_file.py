"""The part of the setup that writes the skill file (instructions for agents) to a folder that an agent reads."""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from pathlib import Path

from indexer.transcripts.model import AgentName
from smart_fork.agents.mcp_registration import Registration
from smart_fork.cli.setup.foreign_file import Edit, ForeignFile
from smart_fork.cli.setup.ledger import Ledger, LedgerLine
from smart_fork.cli.setup.step import Step

SKILL = "past-sessions"
NAME = f"skill {SKILL}"


def content() -> str:
    """Return the text of the skill file (instructions for agents) that setup installs."""
    return files("smart_fork.cli.setup").joinpath("skill/SKILL.md").read_text(encoding="utf-8")


def planned(way: Registration, folder: Path, ledger: Ledger) -> Step:
    """Return the step that writes the skill file (instructions for agents) to a `folder` that the agent of `way` reads.

    If a person has changed an existing file, the step is not done.
    """
    path = folder / SKILL / "SKILL.md"
    text = _file(path).read()
    line = ledger.of("skill", way.agent, path)
    step = partial(Step, "skill", NAME, str(path), agent=way.agent)
    if text == content():
        return step(state="there")
    if text is not None and not (line and line.edit and line.edit.is_in(text)):
        return step(state="left", why="another skill has this name, or you changed it")
    return step(state="new" if text is None else "changed", act=partial(_written, way.agent, path))


def _written(agent: AgentName, path: Path, ledger: Ledger) -> list[str]:
    ledger.begin(LedgerLine(what="skill", agent=agent, path=path, edit=Edit.of(None, content())))
    file = _file(path)
    file.write(file.read(), content())
    return []


def undo(line: LedgerLine) -> list[str]:
    """Delete the skill file in `line` of setup's ledger, unless a person has changed it. Return notes for the user."""
    file = _file(line.path)
    text = file.read()
    if text is None or line.edit is None:
        return []
    if not line.edit.is_in(text):
        return [f"{line.path} stays: you changed it"]
    file.write(text, None)
    return []


def difference(line: LedgerLine) -> str:
    """Return a complaint if the skill file of `line` is gone, or has another text than setup wrote; else ""."""
    text = _file(line.path).read()
    if text is None:
        return f"the skill {line.path} is gone"
    return "" if line.edit and line.edit.is_in(text) else f"the skill {line.path} was changed"


def _file(path: Path) -> ForeignFile:
    return ForeignFile(path, f"Make {path} readable, or skip it with --no-skill.")
