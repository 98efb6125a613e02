"""The sessions in ``tests/fixtures``, as their readers read them: one text for each agent."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from indexer.session_work import Outcome
from indexer.transcripts.model import Session, Turn
from smart_fork.agents.log_readers import READERS
from tests.indexer.transcripts.records import FIXTURES, codex_path, lay_out
from tests.smart_fork.agents.opencode import database

#: How much of a text is kept.
WIDTH = 80


def said() -> Iterator[tuple[str, str]]:
    """Each agent that has fixtures, and what is read from them."""
    for agent in READERS.names:
        if (FIXTURES / agent).is_dir():
            yield agent, "".join(_of_log(agent, name, path) for name, path in logs(agent))


def logs(agent: str) -> Iterator[tuple[str, Path]]:
    """The fixtures of an agent by their names. Where its reader needs them in its home, they are laid out there."""
    if agent == "opencode":
        database.make()
        names = {value: name for name, value in vars(database).items() if name.isupper() and isinstance(value, str)}
        for file in sorted(READERS[agent].discover(), key=lambda file: names[file.path.name]):
            yield names[file.path.name].lower(), file.path
        return
    if (FIXTURES / agent / "home").is_dir():
        for file in lay_out(agent):
            yield str(file.relative_to(Path.home())), file
        return
    files = sorted(path for path in (FIXTURES / agent).rglob("*") if path.is_file() and path.suffix != ".md")
    places = {path: path for path in files}
    if agent == "codex":  # forks have their parents' records from the parents' logs
        for path in files:
            places[path] = codex_path(Path.home(), READERS[agent].read(path).session.session_id)
            places[path].parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, places[path])
    for path in files:
        yield str(path.relative_to(FIXTURES / agent)), places[path]


def _of_log(agent: str, name: str, path: Path) -> str:
    result = READERS[agent].read(path)
    if result.session is None:
        return f"# {name}\nno session: {result.skipped}\n\n"
    lines = [f"# {name}", *_facts(result.session)]
    if result.records:
        lines.append(f"{result.unknown} of {result.records} records are not known")
    for turn in result.session.turns:
        lines += _turn(turn)
    return "\n".join(lines) + "\n\n"


def _facts(session: Session) -> Iterator[str]:
    facts = {
        name: getattr(session, name)
        for name in (
            "session_id", "parent_id", "root_id", "cwd", "inferred_from", "git_branch", "head", "version", "title",
            "named", "also_called", "started", "last_activity", "origin", "compactions", "copied", "interrupted",
            "unfinished", "token_estimate",
        )
    }  # fmt: skip
    facts |= {"models": ", ".join(session.models), "symbols": ", ".join(session.symbols)}
    facts |= {"outcome": Outcome.of(session).value}
    yield from (f"{name}: {str(value)!r}" for name, value in facts.items() if value)


def _turn(turn: Turn) -> Iterator[str]:
    role = f"{turn.role}, a prompt" if turn.prompt else turn.role
    loaded = f", {turn.loaded} tokens loaded" if turn.loaded else ""
    yield f"- {turn.id} {turn.timestamp} {role}{loaded}: {turn.text[:WIDTH]!r}"
    for call in turn.tool_calls:
        files = f", edits {call.edits}" * bool(call.edits) + f", reads {call.reads}" * bool(call.reads)
        yield f"    call {call.id} {call.name}: {call.action[:WIDTH]!r}{files}"
    for result in turn.tool_results:
        failed = ", an error" * result.is_error
        yield f"    result {result.tool_use_id}: {result.note[:WIDTH]!r}{failed} {result.proof.value}".rstrip()
