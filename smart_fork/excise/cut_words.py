"""Searches for cut words, runs of four words and secrets in lines of logs, and in smart-fork's own files.

A found word proves nothing if it also occurs in another session or in smart-fork's own messages. Answers name files,
never the found words.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import IO

import zstandard
from ahocorasick_rs import BytesAhoCorasick

from indexer.safe_files import file_name, index_db, state_home
from indexer.session_export import export_path
from indexer.transcripts.lines import decode_line
from indexer.transcripts.model import AgentName
from smart_fork.agents.excision import cutter as raw
from smart_fork.agents.excision.transcript import searchable_texts
from smart_fork.agents.log_readers import READERS
from smart_fork.excise.answer import Remnant
from smart_fork.finding.index_access import opened
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.registry_path import registry_file

#: Words that a user could search for.
_WORD = re.compile(r"\w{3,64}")
LETTERS = re.compile(r"[^\W\d_]+")
#: A text without blanks, quotes, slashes and commas, which may be a password.
_SOLID_TEXT = re.compile(r"[\w!#$%&*+.:=?@^~-]{6,126}[\w!#$%&*+?@^~-]")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
#: An id that an agent makes, as the whole value of a field.
_ID = re.compile(r"(?:[a-z]+_)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: The shortest word with a digit that is taken for a secret.
MIN_SECRET = 8
#: So many successive words identify a text, even if each word is ordinary.
_WORDS_IN_RUN = 4
#: An escape for a character that a word may have. Control characters end words, as their escapes do in a line.
_ESCAPE = re.compile(rb"\\u(?!00[01])")
#: The lower case of this letter depends on the letter after it.
_CAPITAL_SIGMA = "Σ".encode()
_WordsOfLines = Callable[[list[bytes]], AbstractSet[str]]
_NO_LETTERS = bytes(byte for byte in range(256) if not (byte < 128 and chr(byte).isalpha()))


def all_words(some: Iterable[str]) -> set[str]:
    """Return all words of some texts, in lower case."""
    return {word.lower() for text in some for word in _WORD.findall(text)}


def words_of(lines: Iterable[bytes]) -> set[str]:
    """Return the words of the texts in JSON lines, or of the whole line if it is not JSON."""
    return all_words(text for line in lines for text in _texts(line))


def runs_of(lines: Iterable[bytes]) -> set[str]:
    """Return all runs of four successive words in the texts of JSON lines, each joined with single blanks."""
    return {run for line in lines for text in _texts(line) for run in _runs(text)}


def solid_texts_of(lines: Iterable[bytes]) -> set[str]:
    """Return the texts in JSON lines that look like passwords: letters, digits and other characters, no blanks."""
    return _solid_texts(text for line in lines for text in _texts(line))


def secrets_of(lines: Iterable[bytes]) -> set[str]:
    """Return the words and texts without blanks that look like secrets, except ids of agents."""
    some = [text for line in lines for text in _texts(line) if not _ID.fullmatch(text)]
    long = {one for one in all_words(some) if len(one) >= MIN_SECRET}
    return _solid_texts(some) | {one for one in long if any(map(str.isdigit, one)) and any(map(str.isalpha, one))}


def words_and_runs(lines: Iterable[bytes]) -> set[str]:
    """Return the words in JSON lines, and the runs of four words. A run contains blanks, a word does not."""
    some = list(lines)
    return words_of(some) | runs_of(some)


def words_inside(lines: Iterable[bytes], words: Iterable[str]) -> set[str]:
    """Return the `words` that occur in some lines, even inside a longer word."""
    return _found(lines, _Search(words, _lower))


def remaining_words(lines: Iterable[bytes], wanted: Collection[str], solid: Iterable[str] = ()) -> set[str]:
    """Return the wanted words, runs of four words and `solid` texts (without blanks) that some lines contain.

    A word inside a longer word does not count.
    """
    return _found(
        lines,
        _Search((one for one in wanted if " " not in one), _lower, words_of),
        _Search((one for one in wanted if " " in one), _letters, runs_of),
        _Search(solid, _lower, solid_texts_of),
    )


def remaining_secrets(lines: Iterable[bytes], wanted: Iterable[str]) -> set[str]:
    """Return the wanted secrets that lines contain. Words in ids of agents do not count."""
    return _found(lines, _Search(wanted, _lower, secrets_of))


def _found(lines: Iterable[bytes], *searches: _Search) -> set[str]:
    for line in lines if any(one.left for one in searches) else ():
        for one in searches:
            one.look_at(line)
    return set[str]().union(*(one.found for one in searches))


class _Search:
    """A search for many words in lines, in one pass, without splitting most lines into words.

    `spelled` converts a line to the form that is searched, such as lower case. With `exact`, which returns a line's
    words, only whole words are found.
    """

    def __init__(
        self, wanted: Iterable[str], spelled: Callable[[bytes], bytes], exact: _WordsOfLines | None = None
    ) -> None:
        self.left, self.found = list(dict.fromkeys(wanted)), set[str]()
        self._spelled, self._exact, self._lines = spelled, exact, 0

    def look_at(self, line: bytes) -> None:
        if not self._lines & (self._lines - 1):  # after 1, 2, 4, 8 … lines, what was found is no longer searched for
            self.left = [one for one in self.left if one not in self.found]
            self._search = BytesAhoCorasick([one.replace(" ", "").encode("utf-8", "replace") for one in self.left])
        self._lines += 1
        if self.left:
            found = self._search.find_matches_as_indexes(self._spelled(line), overlapping=True)
            hits = {self.left[at] for at, _, _ in found}
            hits -= self.found
            self.found |= hits & self._exact([line]) if hits and self._exact else hits


def _lower(line: bytes) -> bytes:
    r"""Return a line in lower case, with the decoded texts if escapes such as ``\u0041`` may hide words."""
    if (apart := _ESCAPE.search(line)) is None and line.isascii():
        return line.lower()
    read = list(_texts(line)) if apart or _CAPITAL_SIGMA in line else []
    return "\n".join((line.decode("utf-8", "replace"), *read, *all_words(read))).lower().encode("utf-8", "replace")


def _letters(line: bytes) -> bytes:
    text = "\n".join(_texts(line)).lower()
    if text.isascii():
        return text.encode().translate(None, _NO_LETTERS)
    return "".join(LETTERS.findall(text)).encode("utf-8", "replace")


def _is_secret(solid: str) -> bool:
    has = any(map(str.isdigit, solid)) and any(map(str.isalpha, solid))
    return has and _WORD.fullmatch(solid) is None and not _DATE.match(solid)


def _solid_texts(some: Iterable[str]) -> set[str]:
    return {one for text in some for one in _SOLID_TEXT.findall(text.lower()) if _is_secret(one)}


def _runs(text: str) -> Iterator[str]:
    words = LETTERS.findall(text.lower())
    return (" ".join(words[at : at + _WORDS_IN_RUN]) for at in range(len(words) - _WORDS_IN_RUN + 1))


def _texts(line: bytes) -> Iterable[str]:
    objects = [record for _, record in decode_line(line)[0]]
    return chain.from_iterable(map(searchable_texts, objects)) if objects else (line.decode("utf-8", "replace"),)


#: Shorter words occur in compressed bytes by chance.
_LONG_WORD = re.compile(r"[^\W_]{5,64}")
_MAX_SEPARATE_WORDS = 64
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
#: Files that are not searched: the user's settings, and the log of snapshots, which has no text of sessions.
_UNSEARCHED_NAMES = ("config.toml", "excise.jsonl")


def words_in(*texts: str) -> frozenset[str]:
    """Return the words of texts that have at least five letters."""
    return frozenset(word for text in texts for word in _LONG_WORD.findall(text.lower()))


def traces(agent: AgentName | None, session_ids: Collection[str], words: Collection[str]) -> list[Remnant]:
    """Return smart-fork's own files that contain one of the `words`, which were cut from the sessions.

    Snapshots (contents of files before a cut) are left out. The index is included if deleted text is not erased yet.
    """
    wanted = words_in(*words)
    if not wanted:
        return []
    files = _OwnFiles(agent, session_ids, wanted)
    paths = sorted(path for path in state_home().rglob("*") if path.is_file() and not path.is_symlink())
    kinds = ((path, files.kind_of(path)) for path in paths)
    found = [Remnant(str(path), kind) for path, kind in kinds if kind and files.has_trace(path, kind)]
    if index_db().exists():
        with opened() as store:
            found += [Remnant(str(index_db()), "index")] * store.owes_erasing()
    if any(is_worker_of(one, session_ids) and wanted & words_in(worker_text(one)) for one in Registry.known_workers()):
        found.append(Remnant(str(registry_file()), "register of workers"))
    return found


def agent_of(tool: str) -> AgentName | None:
    """Return `tool` if it names an agent with indexed sessions, else `None`."""
    return tool if tool in READERS.names else None


def is_worker_of(worker: WorkerRecord, session_ids: Collection[str]) -> bool:
    """Return True if a worker was started from, by or as one of the sessions."""
    return not {worker.session_id, worker.source_session_id, worker.caller_session_id}.isdisjoint(session_ids)


def worker_text(worker: WorkerRecord) -> str:
    """Return a worker's texts: its name, prompt, command and status."""
    return "\n".join((worker.name, worker.prompt, *worker.command, worker.status_note))


def words_at(path: Path, wanted: frozenset[str], parts: Mapping[str, str] = MappingProxyType({})) -> set[str]:
    """Return the `wanted` words in a file, decompressed if needed. For `parts` see `words_among`."""
    return words_among(_pieces(path), wanted, parts)


def words_among(
    pieces: Iterable[bytes], wanted: frozenset[str], parts: Mapping[str, str] = MappingProxyType({})
) -> set[str]:
    """Return the `wanted` words that occur in some pieces of bytes as whole words.

    `parts` maps further words to texts: a word is returned if its text occurs anywhere, also inside a longer word.
    """
    found: set[str] = set()
    for piece in pieces:
        text = piece.decode("utf-8", "ignore")
        if "\\u" in text:
            text += "\n" + _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
        text = text.lower()
        # To look for a few words takes a fraction of the time that it takes to part a text into its words.
        likely = (
            wanted
            if len(wanted) > _MAX_SEPARATE_WORDS
            else {word for word in wanted if word not in found and word in text}
        )
        found |= likely.intersection(_LONG_WORD.findall(text) if likely else ())
        found |= {word for word, part in parts.items() if word not in found and part in text}
    return found


@cache
def own_words() -> frozenset[str]:
    """Return the words of smart-fork's own messages, and of the path of its data folder."""
    return words_in(str(state_home()), own_source())


def own_source() -> str:
    """Return the source text of smart-fork, which contains all its messages."""
    package = Path(__file__).parents[1]
    folders = (package, package.with_name("indexer"))
    return "\n".join(path.read_text(encoding="utf-8") for one in folders for path in one.rglob("*.py"))


class _OwnFiles:
    """smart-fork's own files except databases: their kinds, and which of them have one of the `wanted` words."""

    def __init__(self, agent: AgentName | None, session_ids: Collection[str], wanted: frozenset[str]) -> None:
        self._session_ids, self._wanted = session_ids, wanted
        self._exports = {export_path(agent, one) for one in session_ids} if agent else set()
        self._copies = {file_name(one) for one in session_ids}
        self._spared = tuple(f"{one.id}." for one in Registry.known_workers() if not is_worker_of(one, session_ids))

    def kind_of(self, path: Path) -> str:
        """Return a file's kind, such as "export" or "log"; empty if it cannot have text of the sessions."""
        first, *rest = path.relative_to(state_home()).parts
        if path.name.endswith(".tmp"):
            return "half a file"
        if first == "snapshots" or path.name in _UNSEARCHED_NAMES or first.startswith(registry_file().name):
            return ""
        if first == "index":
            return "export" if path in self._exports else ""
        if first == "kept":
            opened = ".reading" in rest and any(one in path.name for one in self._session_ids)
            return "kept copy" if opened or self._copies.intersection(rest) else ""
        if first == "logs":
            return "" if path.name.startswith(self._spared) else "log"
        if first.startswith(index_db().name):
            return "older index" if "-2" in first else ""
        return "file"

    def has_trace(self, path: Path, kind: str) -> bool:
        """Return True if a file has a wanted word. In logs, words of smart-fork's messages do not count."""
        found = words_at(path, self._wanted)
        return bool(found - own_words() if kind in ("log", "file") else found)


def _pieces(path: Path) -> Iterator[bytes]:
    """Yield a file's content in overlapping pieces of bytes, decompressed if needed."""
    with suppress(OSError), path.open("rb") as file:
        yield from raw.overlapping(_unpacked(path, file))


def _unpacked(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    if ".zst" in path.suffixes:
        with suppress(zstandard.ZstdError):
            yield from raw.pieces(zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read)
    elif ".gz" in path.suffixes:
        unpacking = zlib.decompressobj(wbits=31)
        with suppress(zlib.error):
            yield from (unpacking.decompress(piece) for piece in raw.pieces(file.read))
    else:
        yield from raw.pieces(file.read)


def telling_words(lines: Iterable[bytes], gone: Collection[str]) -> set[str]:
    """Return which words of a cut text, given as words and runs of four words (`gone`), `lines` still contain.

    Return an empty set if all of them also occur in smart-fork's own messages: they are then no sign of cut text.
    """
    said = remaining_words(lines, gone)
    return all_words(said) if any(map(is_telling, said)) else set()


def is_telling(word: str) -> bool:
    """Return True if a found word or run of words proves that cut text is left: smart-fork's own messages lack it.

    A word with a digit always proves it. Another word must have at least five letters.
    """
    if " " in word:
        return word not in _own_text()
    return any(map(str.isdigit, word)) or bool(words_in(word) - own_words())


@cache
def _own_text() -> str:
    return " ".join(LETTERS.findall(own_source().lower()))
