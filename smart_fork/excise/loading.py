"""Which loader a transcript needs, and which transcript is meant."""

from __future__ import annotations

from pathlib import Path

from indexer.paths import claude_home
from smart_fork import sessions
from smart_fork.advice import advice
from smart_fork.agents.cutters import CUTTERS, TOOLS, cutter
from smart_fork.cuts.model import Session, Tool, Turn
from smart_fork.errors import NotFound, Usage


def auto(path: Path) -> Tool:
    """Whose transcript it is: Cursor is tried first (E-020).

    Raises:
        Usage: nobody's.
    """
    for one in CUTTERS:
        if one.detect(path):
            return one.tool
    raise Usage(
        f"could not detect tool format for {path}",
        advice(
            f"Name it: --tool {'|'.join(TOOLS)}; or it is no transcript.",
            tool=f"It is no transcript of {', '.join(TOOLS)}.",
        ),
    )


def load_auto(path: Path) -> Session:
    """The session in `path`, whoever wrote it.

    Raises:
        NotFound, Usage: it is not there, or nobody's.
    """
    return load_with_tool("auto", path)


def load_with_tool(tool: str, path: Path, composer: str = "") -> Session:
    """The session in `path`, read as that of `tool`; ``auto`` looks (E-021).

    Raises:
        NotFound, Usage: it is not there, or there is no such tool.
    """
    if tool == "auto" and not path.exists():
        raise NotFound(f"No such transcript: {path}")
    return cutter(auto(path) if tool == "auto" else tool).load(path, composer)


def located(reference: str | None) -> Path:
    """The transcript that is meant: a path, a session's id, or Claude Code's newest where nothing is said.

    Raises:
        NotFound, Usage: there is none, or it means several.
    """
    if not reference:
        return discover_newest_claude()
    path = Path(reference).expanduser()
    if "/" in reference or path.suffix in {suffix for one in CUTTERS for suffix in one.suffixes}:
        if not path.is_file():
            raise NotFound(f"No such transcript: {path}")
        return path
    found = sessions.locate(reference)
    if found.path is None:
        raise NotFound(f"The log of {found.session_id} has been deleted", "There is nothing left to cut.")
    return found.path


def discover_newest_claude() -> Path:
    """The newest session of Claude Code over all projects; sub-agents' own files are none (E-022).

    Raises:
        NotFound: there is no such folder, or no session in it.
    """
    projects = claude_home() / "projects"
    if not projects.is_dir():
        raise NotFound(f"no Claude projects directory at {projects}", "Give a path or a session's id.")
    newest: tuple[int, Path] | None = None
    for path in sorted(projects.glob("*/*.jsonl")):
        if path.name.startswith("agent-"):
            continue
        try:
            moment = path.stat().st_mtime_ns
        except OSError:
            continue
        if newest is None or moment > newest[0]:
            newest = (moment, path)
    if newest is None:
        raise NotFound(f"no .jsonl session files under {projects}", "Give a path or a session's id.")
    return newest[1]


def sort_by_timestamp(turns: tuple[Turn, ...]) -> list[Turn]:
    """By time, for display only; turns of the same time, and those without one, stay in order (E-024)."""
    last = ""
    keys = []
    for turn in turns:
        last = turn.timestamp or last
        keys.append(last)
    return [turn for _, turn in sorted(zip(keys, turns, strict=True), key=lambda pair: pair[0])]
