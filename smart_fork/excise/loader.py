"""Which loader a transcript needs, and which transcript is meant."""

from __future__ import annotations

from pathlib import Path

from smart_fork import sessions
from smart_fork.agents import AGENTS, checkpoints
from smart_fork.agents.facets import AUTO, cuttable, cutter, cutters, first_cut, title_of, why_not
from smart_fork.agents.logs import newest_log
from smart_fork.agents.readers import OWN, READERS
from smart_fork.cuts.lines import only_prompts_previewed
from smart_fork.cuts.model import Tool, Transcript, TranscriptTurn
from smart_fork.cuts.snapshots import cuts
from smart_fork.errors import ForkRefused, NotFound, Usage, advice


def auto(path: Path) -> Tool:
    """Whose transcript it is: Cursor is tried first.

    Raises:
        Usage: nobody's.
        OSError: it cannot be read.
    """
    for one in cutters():
        if one.detect(path):
            return one.tool
    path.open("rb").close()
    raise Usage(
        f"could not detect tool format for {path}",
        advice(
            f"Name its agent: --tool {'|'.join(cuttable())}, or it is not a transcript.",
            tool=f"It is not a transcript of {', '.join(cuttable())}.",
        ),
    )


def load_auto(path: Path) -> Transcript:
    """The session in `path`, whoever wrote it.

    Raises:
        NotFound, Usage: it is not there, or nobody's.
    """
    return load_with_tool(AUTO, path)


def load_with_tool(tool: str, path: Path, composer: str = "") -> Transcript:
    """The session in `path`, read as that of `tool`; ``auto`` looks.

    Raises:
        NotFound, Usage: it is not there, or there is no such tool.
    """
    if tool == AUTO and not _is_there(path):
        raise NotFound(f"No such transcript: {path}")
    return cutter(auto(path) if tool == AUTO else tool).load(path, composer)


def load_for_cut(tool: str, path: Path, composer: str = "") -> Transcript:
    """The same, with previews of prompts alone: no cut asks for others. Raises as `load_with_tool`."""
    with only_prompts_previewed():
        return load_with_tool(tool, path, composer)


def _is_there(path: Path) -> bool:
    return path.exists() or any(one.has(path) for one in cutters())


def located(reference: str | None, tool: str = AUTO) -> Path:
    """The transcript that is meant: a path, a session's id, or where nothing is said the newest of `tool`.

    Raises:
        NotFound, Usage: there is none, or it means several.
        ForkRefused: nothing is cut out of sessions of that agent.
    """
    if not reference:
        return newest(first_cut() if tool == AUTO else tool)
    path = Path(reference).expanduser()
    if "/" in reference or path.suffix in {suffix for one in cutters() for suffix in one.suffixes}:
        if path.is_dir() or not _is_there(path):
            raise NotFound(f"No such transcript: {path}")
        return path
    found = sessions.locate(reference)
    if found.path is None:
        sessions.refuse_unread(found)
        raise NotFound(f"The log of {found.session_id} has been deleted", "Nothing is left to cut.")
    if checkpoints.is_within(str(found.path)):
        raise ForkRefused(
            f"{found.session_id} is kept in a repository, which smart-fork does not write",
            advice(f"Hide it here: smart-fork forget {found.session_id}", tool="Only its author can change it there."),
        )
    own = AGENTS[found.agent].cutter
    if own is None or not own.detect(found.path):
        why = why_not(found.agent, "cut") or "This log is not of a kind that can be cut."
        raise ForkRefused(
            f"Cutting is not possible in sessions of {title_of(found.agent)}: {found.session_id}",
            f"{why} Fork it at an earlier message instead.",
        )
    return _log_to_cut(found, found.path)


def _log_to_cut(found: sessions.Located, longest: Path) -> Path:
    """Of a session's logs the one that was cut before: it is not the longest one since then, if copies did not follow.

    Raises:
        ForkRefused: it went on in two of them. Then `smart-fork show` counts the messages of both.
    """
    logs = READERS[found.agent].locate(found.session_id)
    if len(logs) < 2:
        return longest
    if cut := [path for path in logs if cuts(path)]:
        return longest if longest in cut else cut[0]
    if sessions.read(found).resumed.reason == "elsewhere":
        raise ForkRefused(
            f"{found.session_id} went on in {len(logs)} folders", f"Name one of its logs: {' or '.join(map(str, logs))}"
        )
    return longest


def newest(tool: str) -> Path:
    """The newest transcript of that agent, over all projects.

    Raises:
        NotFound: there is none.
    """
    if found := cutter(tool).newest():
        return found
    if log := newest_log(OWN[tool]):
        return log
    raise NotFound(f"No transcript of {title_of(tool)}", "Give a path or a session's id.")


def sort_by_timestamp(turns: tuple[TranscriptTurn, ...]) -> list[TranscriptTurn]:
    """By time, for display only; turns of the same time, and those without one, stay in order."""
    last = ""
    keys = []
    for turn in turns:
        last = turn.timestamp or last
        keys.append(last)
    return [turn for _, turn in sorted(zip(keys, turns, strict=True), key=lambda pair: pair[0])]
