"""Finds, loads and numbers the transcript to cut, and finds all that was made from it.

From a transcript come copies, branches, forks and hand-overs (`derived_from`), and smart-fork's own files: the export
(a Markdown file), the kept copy of the log, and rows in the index.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from indexer import kept_logs
from indexer.locks import only_writer
from indexer.refresh import erase_owed
from indexer.safe_files import index_db, open_regular
from indexer.session_export import export_path
from indexer.store.base import SessionRow
from indexer.store.sqlite import Store
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS, repository_sessions
from smart_fork.agents.excision import snapshots, titles
from smart_fork.agents.excision.transcript import Transcript, TranscriptTurn
from smart_fork.agents.log_adapters import LogAdapter
from smart_fork.agents.log_readers import OWN, READERS
from smart_fork.display_text import quoted
from smart_fork.errors import ForkRefused, NotFound, SmartForkError, Usage, advice
from smart_fork.excise.answer import FileWithCutText, NumberedTurn, NumberedTurns
from smart_fork.excise.cut_words import all_words, is_telling, remaining_words, words_and_runs
from smart_fork.finding import session_lookup
from smart_fork.finding.index_access import opened
from smart_fork.finding.session_place import permits
from smart_fork.forking.family import Descendant, Descent
from smart_fork.system import call_context


def auto(path: Path) -> str:
    """Return the name of the agent that wrote the transcript in `path`. Cursor is tried first.

    Raises:
        Usage: no known agent wrote the file.
        OSError: the file cannot be read.
    """
    for one in AGENTS.cutters():
        if one.detect(path):
            return one.tool
    path.open("rb").close()
    raise Usage(
        f"could not detect tool format for {path}",
        advice(
            f"Name its agent: --tool {'|'.join(AGENTS.cuttable())}, or it is not a transcript.",
            tool=f"It is not a transcript of {', '.join(AGENTS.cuttable())}.",
        ),
    )


def load_auto(path: Path) -> Transcript:
    """Load the transcript in `path`, and detect its agent."""
    return load_with_tool(AGENTS.AUTO, path)


def load_with_tool(tool: str, path: Path, composer: str = "") -> Transcript:
    """Load the transcript in `path` of the agent `tool`, or of the detected agent with ``auto``.

    `composer` is the id of a chat in Cursor's database, which has several.
    """
    return AGENTS.cutter_of(_tool_of(tool, path)).load(path, composer)


def load_for_cut(tool: str, path: Path, composer: str = "", *, numbered: bool = False) -> Transcript:
    """Load a transcript in the form that a cut needs: only prompts have a preview text."""
    with Transcript.only_prompts_previewed():
        return (load_numbered if numbered else load_with_tool)(tool, path, composer)


def load_numbered(tool: str, path: Path, composer: str = "") -> Transcript:
    """Load the transcript in `path` with its message numbers, as they are shown to the user.

    If the agent's log reader, which numbers them, finds no session, turns are numbered from 0.
    """
    tool = _tool_of(tool, path)
    own = OWN[tool] if tool in OWN.names and not repository_sessions.is_within(str(path)) else None
    fold = own.begun(path) if isinstance(own, LogAdapter) else None
    cutter = AGENTS.cutter_of(tool)
    session = cutter.load_and_feed(path, composer, fold)
    if fold is not None:
        fold.finish(turns=True)
        read, _ = fold.session()
    else:
        read = READERS[tool].read(path).session if tool in READERS.names else None
    if read is None:
        return replace(session, numbers=tuple(range(len(session.turns))))
    places = {turn.id: number for number, turn in enumerate(read.turns)}
    found = [
        next((places[name] for name in (turn.id, *turn.aliases) if name in places), None) for turn in session.turns
    ]
    numbers = tuple(cutter.numbered(session.turns, found))
    return replace(session, numbers=numbers, conversation=read)


def resolve_transcript(
    reference: str | None, tool: str = AGENTS.AUTO, composer: str = "", *, numbered: bool = False
) -> Transcript:
    """Find a transcript by `reference` (see `locate_transcript`) and load it."""
    path, tool = _found(reference, tool)
    return load_for_cut(tool, path, composer, numbered=numbered)


def _tool_of(tool: str, path: Path) -> str:
    if tool == AGENTS.AUTO and not _is_there(path):
        raise NotFound(f"No such transcript: {path}")
    return auto(path) if tool == AGENTS.AUTO else tool


def _is_there(path: Path) -> bool:
    return path.exists() or any(one.has(path) for one in AGENTS.cutters())


def locate_transcript(reference: str | None, tool: str = AGENTS.AUTO) -> Path:
    """Return the path of a transcript by its path or session id; without one, the newest of `tool`.

    Raises:
        NotFound, Usage: no transcript matches, or the reference matches several.
        ForkRefused: sessions of that agent cannot be cut.
    """
    return _found(reference, tool)[0]


def _found(reference: str | None, tool: str) -> tuple[Path, str]:
    if not reference:
        return newest(AGENTS.first_cut() if tool == AGENTS.AUTO else tool), tool
    path = Path(reference).expanduser()
    if "/" in reference or (
        path.suffix and path.suffix in {suffix for one in AGENTS.cutters() for suffix in one.suffixes}
    ):
        if path.is_dir() or not _is_there(path):
            raise NotFound(f"No such transcript: {path}")
        return path, tool
    found = session_lookup.locate(reference)
    if found.path is None:
        session_lookup.refuse_unread(found)
        raise NotFound(f"The log of {found.session_id} has been deleted", "Nothing is left to cut.")
    if repository_sessions.is_within(str(found.path)):
        raise ForkRefused(
            f"{found.session_id} is kept in a repository, which smart-fork does not write",
            advice(f"Hide it here: smart-fork forget {found.session_id}", tool="Only its author can change it there."),
        )
    own = AGENTS[found.agent].cutter
    if own is None or not own.detect(found.path):
        why = AGENTS.why_not(found.agent, "cut") or "This log is not of a kind that can be cut."
        raise ForkRefused(
            f"Cutting is not possible in sessions of {AGENTS.title_of(found.agent)}: {found.session_id}",
            f"{why} Fork it at an earlier message instead.",
        )
    return _log_to_cut(found, found.path), found.agent if tool == AGENTS.AUTO else tool


def _log_to_cut(found: session_lookup.Located, longest: Path) -> Path:
    """Return which of a session's logs to cut: one that was cut before, or else the `longest`.

    A cut log may be shorter than its copies that were not cut. Raise `ForkRefused` if the session was continued in
    several logs, since `smart-fork show` counts the messages of all of them.
    """
    logs = READERS[found.agent].locate(found.session_id)
    if len(logs) < 2:
        return longest
    if cut := [path for path in logs if snapshots.cuts(path)]:
        return longest if longest in cut else cut[0]
    if session_lookup.read(found).resumed.reason == "elsewhere":
        raise ForkRefused(
            f"{found.session_id} went on in {len(logs)} folders", f"Name one of its logs: {' or '.join(map(str, logs))}"
        )
    return longest


def newest(tool: str) -> Path:
    """Return the newest transcript of an agent, in any project, or raise `NotFound`."""
    if found := AGENTS.cutter_of(tool).newest():
        return found
    if log := OWN[tool].newest_log():
        return log
    raise NotFound(f"No transcript of {AGENTS.title_of(tool)}", "Give a path or a session's id.")


def sort_by_timestamp(turns: tuple[TranscriptTurn, ...]) -> list[TranscriptTurn]:
    """Sort turns by time, for display only. Turns without a time keep their place."""
    last = ""
    keys = []
    for turn in turns:
        last = turn.timestamp or last
        keys.append(last)
    return [turn for _, turn in sorted(zip(keys, turns, strict=True), key=lambda pair: pair[0])]


def numbered_turns(session: Transcript) -> NumberedTurns:
    """Return a transcript's turns for ``excise list``: in file order, with their message numbers."""
    turns = tuple(
        NumberedTurn(
            number=number,
            id=turn.id,
            role=turn.role,
            timestamp=turn.timestamp,
            tokens=turn.token_est,
            inherited=turn.is_parents,
            calls=tuple(call.id for call in turn.tool_calls),
            results=tuple(result.tool_use_id for result in turn.tool_results),
            preview=turn.preview,
        )
        for number, turn in zip(session.numbers, session.turns, strict=True)
    )
    path, left = str(session.source_path), left_out(session)
    return NumberedTurns(session.session_id, session.tool, path, session.tokens, turns, left)


def left_out(session: Transcript) -> str:
    """Return a sentence that says which part of a large log was not read; empty if all of it was read."""
    return session_lookup.left_out(session.conversation) if session.conversation else ""


log = logging.getLogger(__name__)

#: The most digits of a turn's number. Python refuses to parse numbers of thousands of digits.
MAX_DIGITS = 9


def parse_ranges(text: str, count: int) -> list[tuple[int, int]]:
    """Return the first and last number of each part of a range such as "5-7,9". Reversed parts are swapped.

    Raises:
        Usage: `text` is not a range, or a number is not below `count`.
    """
    found: list[tuple[int, int]] = []
    for piece in text.split(","):
        if not (part := piece.strip()):
            continue
        low, dash, high = (side.strip() for side in part.partition("-"))
        if dash and not (_is_number(low) and _is_number(high)):
            raise Usage(f'bad range "{quoted(part)}"', _hint())
        if not _is_number(low):
            raise Usage(f'bad turn "{quoted(part)}"', _hint())
        first, last = sorted((int(low), int(high) if dash else int(low)))
        if last >= count:
            raise Usage(f"turn {last} out of range (the last one is {count - 1})", _hint())
        found.append((first, last))
    if not found:
        raise Usage(f'bad range "{quoted(text)}"', "Ranges look like 5-7,9.")
    return found


def chosen_turns(session: Transcript, text: str = "", ids: Sequence[str] = ()) -> set[str]:
    """Return the ids of the turns that a range of numbers or a list of ids names.

    A range includes unnumbered lines of the conversation between its messages.

    Raises:
        Usage: a turn does not exist.
    """
    turns = session.turns
    last = max((number for number in session.numbers if number is not None), default=-1)
    ranges = parse_ranges(text, last + 1) if text else []
    found = {turns[position].id for low, high in ranges for position in _positions(session, low, high)}
    names = {name: turn for turn in turns for name in (turn.id, *turn.aliases)}
    for identity in ids:
        if identity not in names:
            raise Usage(
                f"no turn with id {quoted(identity)}",
                advice(
                    "`smart-fork excise list --json` gives the ids.", tool="read_session gives the ids, as message_id."
                ),
            )
        found.update(filter(None, (names[identity].id, names[identity].told_again)))
    return found


def _hint() -> str:
    looks = "Ranges look like 5-7,9"
    return advice(f"{looks}; `smart-fork excise list` numbers the turns.", tool=f"{looks}; read_session numbers them.")


def _positions(session: Transcript, low: int, high: int) -> Iterator[int]:
    named = [at for at, number in enumerate(session.numbers) if number is not None and low <= number <= high]
    yield from named
    if low < high and named:
        is_said = AGENTS.cutter_of(session.tool).is_said
        for at in range(named[0], named[-1]):
            if session.numbers[at] is None and is_said(session.turns[at]):
                yield at


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


def keys_of(turns: Iterable[TranscriptTurn]) -> set[str]:
    """Return the keys of the turns' records, which are equal in every copy, and keys of titles that quote them."""
    return {key for turn in turns for key in (turn.key, *turn.aliases, *titles.marks(turn.says)) if key}


def matching_turns(session: Transcript, keys: Collection[str]) -> set[str]:
    """Return the ids of the turns in a copy of a session that have one of the keys, or are titles that quote it."""
    return {
        turn.id
        for turn in session.own
        if any(key in keys for key in (turn.key, *turn.aliases, *titles.marks(turn.repeats)))
    }


def dependent_logs(tool: str, paths: Collection[Path], first: int = 0) -> list[Path]:
    """Return the logs of forks that refer to records in these files, from record `first` on, instead of copying them.

    Forks of such forks are included.
    """
    return agent.heirs(paths, first) if (agent := AGENTS.find_cutter(tool)) else []


def load_copy(session: Transcript, path: Path) -> Transcript | None:
    """Load the file in `path`, a copy of `session`. Return `None` if it cannot be read."""
    try:
        return load_for_cut(session.tool, path)
    except (SmartForkError, OSError) as error:
        log.info("not followed: %s: %s", path, error)
        return None


#: Seconds to wait for another process that is indexing.
INDEX_LOCK_SECONDS = 30.0


def derived_from(session: Transcript, keys: Collection[str] = ()) -> Descent:
    """Return the copies, branches, forks and hand-overs of a session that the calling client may see.

    A copy is recognized by a record with one of the `keys`.
    """
    if session.tool not in READERS.names:
        return Descent()
    agent, own = session.tool, session.source_path.resolve()
    found = Descent.of(agent, session.session_id, session.source_path, keys)
    known = {one.path.resolve() for one in found.descendants}
    copied = [
        path
        for path in (*map(Path, sorted(READERS.staged_copies(session.session_id))), *other_files(session))
        if path.is_file() and path.resolve() not in {own, *known}
    ]
    below = (*found.descendants, *(Descendant(agent, session.session_id, path) for path in copied))
    below, unclear, beside = (tuple(filter(_is_permitted, some)) for some in (below, found.unclear, found.siblings))
    return Descent(below, unclear, beside, found.ancestors, found.without_log)


def other_files(session: Transcript) -> list[Path]:
    """Return the session's other files, which hold rewound records (turns that the user has undone)."""
    own = AGENTS.find_cutter(session.tool)
    return own.others(session.source_path) if own else []


def _is_permitted(one: Descendant) -> bool:
    """Return True if the calling client may read the project of this session, and so may cut it."""
    if not call_context.limited():
        return True
    with suppress(OSError):
        copy = READERS[one.agent].read(one.path).session
        return copy is not None and permits(copy)
    return False


def own_files_with(agent: AgentName, session_id: str, gone: Collection[str]) -> Iterator[tuple[Path, set[str]]]:
    """Yield (path, words) for each own file of a session (export, copy of the log, index) with cut words (`gone`)."""
    export, kept = export_path(agent, session_id), kept_logs.find(agent, session_id)
    if found := remaining_words(lines_of(export), gone):
        yield export, found
    if kept is not None:
        with kept_logs.opened(kept) as path:
            if found := remaining_words(lines_of(path), gone):
                yield kept.folder, found
    if index_db().exists():
        with opened() as store:
            row = store.session(agent, session_id)
            found = _indexed(store, row, gone) if row is not None else set()
        if found:
            yield index_db(), found


def copies_with(agent: AgentName, session_id: str, gone: Collection[str], reason: str) -> Iterator[FileWithCutText]:
    """Yield smart-fork's own files of a session with cut words (`gone`), each with this `reason`.

    A file is skipped if smart-fork's own messages contain all the words found in it.
    """
    for path, said in own_files_with(agent, session_id, gone):
        if any(map(is_telling, said)):
            yield FileWithCutText(str(path), tuple(sorted(all_words(said))), reason)


def _indexed(store: Store, row: SessionRow, gone: Collection[str]) -> set[str]:
    chunks = {placement.chunk for placement in store.placements_of(row.row)}
    there = words_and_runs(text.encode() for text in (row.title, row.headline, *store.texts(chunks).values()))
    found = there.intersection(gone)
    words = (word for word in gone if word not in found and " " not in word)
    terms = {f'"{word}"': word for word in words if not _is_form(word, there)}
    return found | {terms[term] for term, rows in store.having("sessions", list(terms), [row.row]).items() if rows}


def _is_form(word: str, others: set[str]) -> bool:
    """Return True if a full-text index may take `word` for a form of one of the `others`: "raising" for "raises"."""
    stem = word[: max(3, len(word) - 3)]
    return word.isalpha() and (len(word) == len(stem) or any(one.startswith(stem) for one in others))


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a regular file. Yield nothing if the file cannot be read."""
    with suppress(OSError), open_regular(path) as file:
        yield from file


def own_files(agent: AgentName, session_id: str) -> list[Path]:
    """Return smart-fork's export (a Markdown file) and kept copy of a session's log, if they exist."""
    kept, export = kept_logs.find(agent, session_id), export_path(agent, session_id)
    return [*([kept.folder] if kept else []), *([export] if export.exists() else [])]


def remove_own_files_with(agent: AgentName, session_id: str, words: Collection[str]) -> None:
    """Remove smart-fork's own files of a session if one of them contains one of these words."""
    if any(copies_with(agent, session_id, words, "")):
        remove_own_files(agent, session_id)


def remove_own_files(agent: AgentName, session_id: str) -> None:
    """Delete a session's export (a Markdown file), kept copy and index rows, before its log is deleted.

    Raises:
        IndexBusyError: another process is indexing for too long.
        IndexUnavailable: the index cannot be opened.
    """
    export_path(agent, session_id).unlink(missing_ok=True)
    kept_logs.remove(agent, session_id)
    if not index_db().exists():
        return
    with only_writer(INDEX_LOCK_SECONDS), opened() as store:
        store.forget_session(agent, session_id)
        erase_owed(store)
