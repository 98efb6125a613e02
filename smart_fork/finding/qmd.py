"""Searches with the program qmd (``npm install -g @tobilu/qmd``), which indexes the exports (sessions as Markdown
files).

Its index is in ``<SMART_FORK_HOME>/qmd``. A person's own qmd index and settings are never touched: `INDEX_PATH` and
`QMD_CONFIG_DIR` point to this folder. qmd runs where no project's ``.qmd`` can override them. Downloaded models are
shared.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from indexer.environment import Setting
from indexer.locks import IndexBusyError, only_writer
from indexer.masking import Masked, beginning, mask
from indexer.safe_files import index_root, private_dir, replace_file, state_home
from indexer.session_export import export_path, parse_front_matter
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.display_text import printable
from smart_fork.errors import ProgramFailed, ProgramMissing, SmartForkError, advice
from smart_fork.finding.request import (
    EngineMode,
    EngineQuestion,
    EngineUnavailable,
    RankedDocument,
    Ranking,
    collection_of,
)
from smart_fork.system.processes import Completed, Processes

#: Terminal control sequences in qmd's output: colors, cursor movements and progress bars.
_STEERING = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
#: The beginning of a list or object that may hold results. The ``[info]`` or ``[1/2]`` of a log line does not match.
_BEGINNING = re.compile(r'\[\s*\]|\[\s*\{\s*["}]|\{\s*["}]')
_NOTHING = re.compile(r"^\s*No results\b", re.IGNORECASE | re.MULTILINE)
_LOCATIONS = ("path", "file", "source", "document_path")
_TEXTS = ("snippet", "text", "content")
_INSIDE = ("document", "metadata", "meta")
_DECODER = json.JSONDecoder()


class NotJson(ProgramFailed):
    """An error: qmd's output has neither results nor a statement that there are none. The message quotes it."""

    code = "not_json"


def without_steering(text: str) -> str:
    """Return `text` without terminal control sequences."""
    return _STEERING.sub("", text)


def results_in(printed: str) -> list[dict[str, Any]]:
    """Parse the results in qmd's output, ignoring other text: a list, ``{"results": […]}``, or objects, one a line.

    Raises:
        NotJson: the output has no readable results, for instance because it was cut off.
    """
    text = without_steering(printed).strip()
    if not text:
        return []
    try:
        values = [_DECODER.decode(text)]
    except (ValueError, RecursionError):
        values = _values(text)
    if not values:
        if _NOTHING.search(text):
            return []
        raise NotJson(text[:200])
    lists = [found for value in values if (found := _list_of(value)) is not None]
    if lists:  # what is printed around it may hold small ones
        return [one for one in max(lists, key=len) if isinstance(one, dict)]
    each = [value for value in values if isinstance(value, dict) and location_of(value)]
    if not each:
        raise NotJson(text[:200])
    return each


def location_of(result: dict[str, Any]) -> str:
    """Return where the document of a search result is, as qmd prints it; empty if it does not."""
    return _field(result, _LOCATIONS)


def text_of(result: dict[str, Any]) -> str:
    """Return the text that a search result quotes from its document."""
    return _field(result, _TEXTS)


def _values(text: str) -> list[Any]:
    """Return the outermost JSON values in a text that also has other lines; raise `NotJson` for an unfinished one."""
    found, position = [], 0
    while start := _BEGINNING.search(text, position):
        try:
            value, position = _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError) as error:
            raise NotJson(text[start.start() :][:200]) from error
        found.append(value)
    return found


def _list_of(value: Any) -> list[Any] | None:
    if isinstance(value, dict) and isinstance(value.get("results"), list):
        return list(value["results"])
    return value if isinstance(value, list) else None


def _field(result: dict[str, Any], names: tuple[str, ...]) -> str:
    places = [result, *(result[name] for name in _INSIDE if isinstance(result.get(name), dict))]
    texts = (place.get(name) for place in places for name in names)
    return next((text for text in texts if isinstance(text, str) and text.strip()), "")


log = logging.getLogger(__name__)

#: The seconds that each search may take; the first searches may load models.
SEARCH_SECONDS = float(Setting.QMD_SECONDS.default)
#: The times for qmd to list collections, to read the exports for a question or for an index run, and to embed them. qmd
#: stops embedding a little earlier by itself, and continues in the next run.
LIST_SECONDS, READ_SECONDS, UPDATE_SECONDS, EMBED_SECONDS = 20.0, 60.0, 900.0, 35 * 60.0
#: If no document matches an intent as a whole, this many words are searched one by one.
MAX_WORDS = 6
#: The number of documents asked for first, and the number if the first ones are not enough.
WANTED, MAX_WANTED = 50, 1000
#: The number of documents whose header qmd is asked for.
MAX_LOOKUPS = 20
#: The part of an export that is read for its header.
HEADER_BYTES, HEADER_LINES = 16_384, 12

_COMMANDS: Mapping[EngineMode, str] = {"hybrid": "query", "vector": "vsearch", "lexical": "search"}
#: The message of ``vsearch`` if it has no embeddings to search; it then reports no results.
_NO_VECTORS = re.compile(r"need embeddings|vector index not found|no embeddings", re.IGNORECASE)
#: Prefixes that give a query a type, and words that a query excludes.
_TYPED = re.compile(r"^(lex|vec|hyde|intent|expand)\s*:\s*", re.IGNORECASE)
_NEGATED = re.compile(r"(?<!\S)-+(?=\S)")
#: The beginning of a snippet, and the numbers of numbered lines.
_HUNK = re.compile(r"^@@ [^\n]*@@[^\n]*\n*")
_NUMBERED = re.compile(r"^\s*\d+\s*[:│|]\s?")
_INSTALL = "Install qmd (npm install -g @tobilu/qmd) and put it on PATH, or set SMART_FORK_QMD_COMMAND to it."


def _has_exports(agent: AgentName) -> bool:
    """Return True if the agent's sessions have exports. Otherwise qmd is not asked: each of its calls takes 0.25 s."""
    return any(index_root().glob(f"{agent}/*"))


class Qmd:
    """The program qmd as a `SearchEngine`. `environment` says which program to run, and how long it may take."""

    name = "qmd"

    def __init__(self, processes: Processes | None = None, *, environment: Mapping[str, str] | None = None) -> None:
        self._processes = processes or Processes()
        self._environment = os.environ if environment is None else environment
        self._folder = state_home() / "qmd"

    # -- what it knows ---------------------------------------------------------------------------------------------

    def refresh(self, stamp: str) -> None:
        missing = self._missing()
        if not missing and self._stamp() == stamp:
            return
        try:
            with only_writer(name="qmd"):
                self._read(missing, stamp, READ_SECONDS)
        except IndexBusyError as error:
            if missing:
                raise EngineUnavailable("Another process is updating qmd's index.", "Ask again.") from error
        except ProgramFailed as error:
            if missing:
                raise EngineUnavailable(error.message, error.hint) from error
            log.warning("qmd has not read what is new: %s", error)

    def renew(self, stamp: str, patience: float) -> None:
        with only_writer(patience, "qmd"):
            self._read(self._missing(), stamp, UPDATE_SECONDS)
            done = self._run(["embed"], EMBED_SECONDS)
        if not done.ok:
            step = "`qmd pull` downloads the models that it needs."
            raise ProgramFailed(f"qmd has words but no embeddings: {_failure('embed', done)}", step)

    def erase(self) -> bool:
        if not (self._folder / "index.sqlite").exists():
            return True
        (self._folder / "read").unlink(missing_ok=True)  # where it fails now, the next question tries again
        try:
            with only_writer(name="qmd"):
                return self._read(self._missing(), "", READ_SECONDS)
        except SmartForkError as error:
            log.warning("what was taken out of exports may still be in qmd's index: %s", error)
            return False

    def _read(self, missing: list[AgentName], stamp: str, seconds: float) -> bool:
        """Have qmd read all exports, and store `stamp`, the time of the index's last change, to know what it has read.

        First create the `missing` collections (one for each agent). Return False if content that was deleted from
        exports is left in qmd's index.

        Raises:
            EngineUnavailable: a collection cannot be created.
            ProgramFailed: qmd did not read the exports.
        """
        for agent in missing:
            self._make(agent, seconds)
        if still := self._missing() if missing else []:
            raise EngineUnavailable(f"qmd has no collection {collection_of(still[0])}, and makes none.", _INSTALL)
        done = self._run(["update"], seconds)
        if not done.ok:
            raise ProgramFailed(_failure("update", done))
        erased = self._run(["cleanup"], seconds)  # an old version has none
        if not erased.ok:
            log.warning("what was taken out of exports may still be in qmd's index: %s", _failure("cleanup", erased))
        replace_file(self._folder / "read", [stamp.encode()], durable=False)
        return erased.ok

    def _make(self, agent: AgentName, seconds: float) -> None:
        exports = private_dir(index_root() / agent)
        done = self._run(["collection", "add", str(exports), "--name", collection_of(agent)], seconds)
        if not done.ok and b"already exists" not in done.stderr + done.stdout:
            raise EngineUnavailable(_failure("collection add", done), _INSTALL)

    def _missing(self) -> list[AgentName]:
        """Return the agents with exports that qmd does not know yet.

        Raises:
            EngineUnavailable: qmd is not installed, or the program is not qmd.
        """
        try:
            done = self._run(["collection", "list"], LIST_SECONDS)
        except ProgramFailed as error:
            raise EngineUnavailable(error.message, error.hint or _INSTALL) from error
        if not done.ok:
            raise EngineUnavailable(f"{self.program()}: {_failure('collection list', done)}", _INSTALL)
        listed = without_steering(done.text)
        return [
            agent
            for agent in filter(_has_exports, AGENTS.readable())
            if not re.search(rf"^[\s*•-]*{re.escape(collection_of(agent))}(?=[\s:(,]|$)", listed, re.MULTILINE)
        ]

    def _stamp(self) -> str:
        try:
            return (self._folder / "read").read_text("utf-8")
        except (OSError, ValueError):
            return ""

    # -- asking ----------------------------------------------------------------------------------------------------

    def ask(self, question: EngineQuestion) -> Ranking:
        """Ask qmd's commands ``query``, ``vsearch`` and ``search`` until one succeeds; see `SearchEngine.ask`."""
        failed: list[str] = []
        for way in _COMMANDS:
            try:
                documents, dropped = self._found(way, question)
            except EngineUnavailable as error:
                failed.append(error.message)
                break
            except ProgramFailed as error:
                failed.append(str(error))
            else:
                return Ranking(tuple(documents), way, "; ".join(failed), dropped, _answer_fields(way, failed))
        return Ranking((), None, "; ".join(failed), said=_answer_fields(None, failed))

    def _found(self, way: EngineMode, question: EngineQuestion) -> tuple[list[RankedDocument], int]:
        """Return the exports that a qmd command (`way`) finds, and the number of other results."""
        documents, dropped, more = self._ranked(way, question, WANTED)
        if more and not question.enough(documents):
            try:
                documents, dropped, _ = self._ranked(way, question, MAX_WANTED)
            except ProgramFailed as error:
                log.warning("qmd was asked for more, and does not give it: %s", error)
        return documents, dropped

    def _ranked(self, way: EngineMode, question: EngineQuestion, wanted: int) -> tuple[list[RankedDocument], int, bool]:
        documents: list[RankedDocument] = []
        results, more = 0, False
        for agent in filter(_has_exports, question.agents):
            found = self._results(_COMMANDS[way], agent, question.intent, wanted)
            if way == "lexical" and not found:
                found = self._by_words(agent, question, wanted)
            documents += self._documents(agent, found)
            results += len(found)
            more = more or len(found) >= wanted
        return documents, results - len(documents), more

    def _by_words(self, agent: AgentName, question: EngineQuestion, wanted: int) -> list[dict[str, Any]]:
        """Find exports (sessions as Markdown) with most of the question's words, by searching each word alone.

        qmd's ``search`` finds only documents with all words, and an intent is a whole sentence.
        """
        words = sorted(question.words, key=len, reverse=True)[:MAX_WORDS]
        best: dict[str, dict[str, Any]] = {}
        total: dict[str, float] = {}
        for word in words if len(question.words) > 1 else ():
            for result in self._results("search", agent, word, wanted):
                place = location_of(result)
                best.setdefault(place, result)
                total[place] = total.get(place, 0.0) + (_valid_score(result) or 0.0) + 1e-6
        return [best[place] | {"score": total[place] / len(words)} for place in best]

    def _results(self, command: str, agent: AgentName, intent: str, wanted: int) -> list[dict[str, Any]]:
        argv = [
            command,
            "-c",
            collection_of(agent),
            "--json",
            "-n",
            str(wanted),
            "--",
            _without_operators(command, intent),
        ]
        done = self._run(argv, self._seconds())
        if not done.ok:
            raise ProgramFailed(_failure(command, done))
        try:
            found = results_in(done.text)
        except NotJson as error:
            raise NotJson(f"qmd {command} returned invalid JSON: {_quoted(str(error), 200)}") from error
        complaint = without_steering(done.stderr.decode("utf-8", "replace"))
        if command == "vsearch" and not found and _NO_VECTORS.search(complaint):
            raise ProgramFailed(_failure(command, done))
        return found[:wanted]

    # -- whose documents -------------------------------------------------------------------------------------------

    def _documents(self, agent: AgentName, found: list[dict[str, Any]]) -> Iterator[RankedDocument]:
        left = MAX_LOOKUPS
        for result in found:
            place = location_of(result)
            if (export := _export_at(agent, place)) is None:
                continue
            session_id = _session_of_export(agent, export)
            if session_id is None and place.startswith("qmd://") and left:
                left -= 1
                session_id = self._looked_up(agent, place)
            if session_id:
                yield RankedDocument(agent, session_id, _valid_score(result), _HUNK.sub("", text_of(result)))

    def _looked_up(self, agent: AgentName, place: str) -> str | None:
        """Return the session id in the export `place`, whose name qmd has changed; `None` without an id."""
        try:
            done = self._run(["get", place, "--no-line-numbers", "-l", str(HEADER_LINES)], LIST_SECONDS)
        except (ProgramFailed, EngineUnavailable):
            return None
        lines = [_NUMBERED.sub("", line) for line in done.text.splitlines()[: HEADER_LINES + 4]] if done.ok else []
        # qmd puts a line of its own, and another such line, before the header.
        beginnings = [number for number, line in enumerate(lines) if line.strip() == "---"][:2]
        return next(
            (who for number in beginnings if (who := _session_in_header(agent, "\n".join(lines[number:])))), None
        )

    # -- the program -----------------------------------------------------------------------------------------------

    def program(self) -> str:
        """Return the absolute path of the qmd executable; raise `EngineUnavailable` if it is not found."""
        wanted = Setting.QMD_COMMAND.text(self._environment) or "qmd"
        folders = self._environment.get("PATH", os.defpath).split(os.pathsep)
        # A relative one would let the directory that is asked from choose the program.
        path = os.pathsep.join(folder for folder in folders if os.path.isabs(folder))  # noqa: PTH117 - a string
        found = shutil.which(os.path.expanduser(wanted), path=path)  # noqa: PTH111 - a string
        if found is None or not os.path.isabs(found):  # noqa: PTH117
            raise EngineUnavailable(f"qmd executable not found: {wanted}", _INSTALL)
        return found

    def _run(self, argv: list[str], seconds: float) -> Completed:
        """Run qmd with these arguments and return the result, whatever its exit status.

        Raises:
            EngineUnavailable: qmd is not installed.
            ProgramFailed: qmd cannot be started, or did not end in time.
        """
        program = self.program()
        folder = private_dir(self._folder)
        path = f"{Path(program).parent}{os.pathsep}{self._environment.get('PATH', os.defpath)}"  # node is beside it
        ours = {"INDEX_PATH": str(folder / "index.sqlite"), "QMD_CONFIG_DIR": str(folder), "PWD": os.sep}
        env = {**self._environment, **ours, "PATH": path, "NO_COLOR": "1"}
        try:
            return self._processes.run([program, *argv], cwd=Path(os.sep), env=env, timeout=seconds)
        except ProgramMissing as error:
            raise EngineUnavailable("qmd executable not found", _INSTALL) from error
        except ProgramFailed as error:
            raise ProgramFailed(f"qmd {argv[0]} failed: {error.message}", error.hint) from error

    def _seconds(self) -> float:
        return Setting.QMD_SECONDS.number(self._environment) or SEARCH_SECONDS

    def what_to_do(self) -> tuple[str, tuple[str, ...]]:
        have_it_read = "Start the service in HTTP mode with SMART_FORK_INDEXING=true" + advice(
            ", or run `smart-fork index run`; or set SMART_FORK_ENGINE=builtin.",
            tool="; or without SMART_FORK_ENGINE=qmd smart-fork searches by itself.",
        )
        return "qmd_not_available", (_INSTALL, have_it_read, "Ask again once indexing has completed.")


def _without_operators(command: str, intent: str) -> str:
    text = " ".join(intent.split())
    if command == "search":
        return _NEGATED.sub("", text) or text
    return _TYPED.sub(r"\1 ", text)


def _answer_fields(way: EngineMode | None, failed: list[str]) -> dict[str, Any]:
    return {"qmd_command": _COMMANDS[way] if way else None, **({"qmd_error": "; ".join(failed)} if failed else {})}


def _failure(command: str, done: Completed) -> str:
    said = without_steering(done.stderr.decode("utf-8", "replace")).strip()
    return f"qmd {command} failed: {_quoted(said, 500) or '<no stderr>'}"


def _quoted(said: str, characters: int) -> Masked:
    return printable(beginning(mask(said), characters))


def _valid_score(result: Mapping[str, Any]) -> float | None:
    """Return the score of a search result, limited to 0…1; `None` if it has no valid score."""
    score = result.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float):
        return None
    return min(1.0, max(0.0, float(score))) if abs(score) <= 1e300 else None  # NaN compares as false


def _export_at(agent: AgentName, place: str) -> Path | None:
    """Return the export that qmd names as `place`; `None` outside the folder of the agent's exports."""
    if place.startswith("qmd://"):
        collection, _, name = place.removeprefix("qmd://").partition("?")[0].partition("/")
        if collection != collection_of(agent):
            return None
        name = unquote(name)
    elif place.startswith(f"{collection_of(agent)}/"):
        name = place.partition("/")[2]
    else:
        folder, _, name = place.rpartition("/")
        if folder != str(index_root() / agent):
            return None
    plain = name not in ("", ".", "..") and "/" not in name and "\0" not in name
    return index_root() / agent / name if plain else None


def _session_of_export(agent: AgentName, export: Path) -> str | None:
    """Return the id of the session that an export belongs to; `None` if the file is missing or no export."""
    try:
        if export.is_symlink() or not export.is_file():
            return None
        with export.open("rb") as file:
            head = file.read(HEADER_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):  # a name too long, half a character
        return None
    session_id = _session_in_header(agent, head)
    return session_id if session_id and export_path(agent, session_id) == export else None


def _session_in_header(agent: AgentName, text: str) -> str | None:
    """Return the session id in the header of an export's `text`; `None` if the header names another agent."""
    header = parse_front_matter(text)
    return header.get("session_id") if header.get("agent", agent) == agent else None
