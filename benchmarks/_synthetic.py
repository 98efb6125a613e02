"""An index of any size, written by the store itself: made-up sessions of many repositories, and their vectors.

The words follow Zipf's law with English function words in front. One repository has 17 % of the chunks, the others
0.8 % or less. The vectors are about as near to each other as those of real sessions: cosine 0.2 between any two, 0.7 to
the nearest.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from indexer.one_thread_numpy import np
from indexer.project import Project, project_of
from indexer.session_export import Chunk
from indexer.store.base import Document, Reading, Words
from indexer.store.sqlite import Store
from indexer.transcripts.base import Checkpoint, LogFile
from indexer.transcripts.model import Session, Turn

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIMENSIONS = 384
REPOSITORIES = 200
CHUNKS_A_SESSION, CHUNK_WORDS = 27, 90
#: How often a question is put: as a caller does that gives four further phrasings.
PHRASINGS = 5
SENTENCE_WORDS, SENTENCES = 10, 40_000
_FUNCTION_WORDS = (
    "the to and a of in is it for that this with on be not as we if so but from by an or are was can will have has at "
    "i you do use when which then now all there no should only more also into than out after"
)
_SYLLABLES = "ba co di fu ga he jo ka li mo nu pa re si to va we xi yo za"
#: What two vectors have in common: all of them, those of a repository, of a session, and of a topic.
_COMMON, _REPOSITORY, _SESSION, _TOPIC = 0.2, 0.03, 0.1, 0.4


class Question(NamedTuple):
    """Phrasings of one to twelve words of a chunk, its project, and for each phrasing a vector near the chunk's."""

    phrasings: tuple[str, ...]
    project: Project
    vectors: tuple[bytes, ...]


class SyntheticIndex:
    """Grows an index to a given number of chunks. `vectors` are those of the chunks, by chunk number from 1."""

    def __init__(self, store: Store, folder: Path, most: int, model: str) -> None:
        self._store = store
        self._random = np.random.default_rng(42)
        self._sentences = _sentences(self._random)
        self._matrix = np.empty((most, DIMENSIONS), np.float32)
        self._centres = _units(self._random, 1 + REPOSITORIES)
        self._topics = _units(self._random, 4000)
        self._sessions = itertools.count()
        self.projects = [_repository(folder / f"repo-{number:03}") for number in range(REPOSITORIES)]
        self.chunks = 0
        share = np.array([0.17] + [0.008] * 80 + [0.0016] * (REPOSITORIES - 81))
        self._share = share / share.sum()
        store.use_model(model, DIMENSIONS)

    @property
    def vectors(self) -> NDArray[np.float32]:
        return self._matrix[: self.chunks]

    def grow(self, chunks: int) -> None:
        """Add sessions until there are so many chunks."""
        paths = []
        first = self.chunks
        self._store.db.execute("PRAGMA synchronous = OFF")  # a made-up index may be lost
        while self.chunks < chunks:
            size = min(CHUNKS_A_SESSION, chunks - self.chunks)
            repository = int(self._random.choice(REPOSITORIES, p=self._share))
            document = self._document(repository, size)
            file = LogFile("claude", document.session.source_path, size, 1, 1)
            self._store.save(Reading(file, "1", Checkpoint(0, 0, "", b"")), document)
            self._matrix[self.chunks : self.chunks + size] = self._session_vectors(repository, size)
            self.chunks += size
            paths.append(str(file.path))
        self._store.forget_files(paths)  # there are no such logs, and nobody shall look for them
        for start in range(first, self.chunks, 4096):
            group = range(start, min(start + 4096, self.chunks))
            self._store.add_vectors([(row + 1, self._matrix[row].tobytes()) for row in group])
        self._store.db.execute("PRAGMA synchronous = NORMAL; PRAGMA wal_checkpoint(TRUNCATE)")

    def queries(self, count: int) -> Iterator[Question]:
        """Each asks for a chunk."""
        rows = self._random.integers(0, self.chunks, count)
        places = dict(self._store.db.execute("SELECT chunks.id, key FROM chunks JOIN parts ON parts.id = part "
                                             "JOIN projects ON projects.id = project").fetchall())  # fmt: skip
        of_key = {project.key: project for project in self.projects}
        for row in rows.tolist():
            words = self._store.texts([row + 1])[row + 1].split()
            sizes = self._random.integers(1, 13, PHRASINGS).tolist()
            starts = self._random.integers(0, CHUNK_WORDS - 13, PHRASINGS).tolist()
            noise = self._random.standard_normal((PHRASINGS, DIMENSIONS), np.float32) / np.sqrt(DIMENSIONS)
            yield Question(
                tuple(" ".join(words[start : start + size]) for size, start in zip(sizes, starts, strict=True)),
                of_key[places[row + 1]],
                tuple(vector.tobytes() for vector in _unit(self._matrix[row] + 0.9 * noise)),
            )

    def _document(self, repository: int, size: int) -> Document:
        number = next(self._sessions)
        picked = self._random.integers(0, len(self._sentences), (size, CHUNK_WORDS // SENTENCE_WORDS))
        texts = [" ".join([self._sentences[one] for one in row]) for row in picked.tolist()]
        chunks = tuple(
            Chunk(self._random.bytes(16), text, position, f"m{position}", "assistant", position // 4)
            for position, text in enumerate(texts)
        )
        name, moment = f"{number:032x}", f"2026-01-01T00:00:{number:09}Z"
        turns = tuple(Turn(f"t{i}", None, "user", moment, prompt=i % 4 == 0) for i in range(size))
        project = self.projects[repository]
        session = Session(
            agent="claude", session_id=name, source_path=Path(f"/no/log/{name}.jsonl"), turns=turns, cwd=project.root,
            title=texts[0][:60], root_id=name, started=moment, last_activity=moment,
        )  # fmt: skip
        words = Words(session.title, "\n".join(texts[::4]), "\n".join(texts), "", "")
        return Document(session, project, project.root, chunks, words)

    def _session_vectors(self, repository: int, size: int) -> NDArray[np.float32]:
        own = _units(self._random, 1)
        topics = self._topics[self._random.integers(0, len(self._topics), size)]
        noise = self._random.standard_normal((size, DIMENSIONS), np.float32) / np.sqrt(DIMENSIONS)
        rest = 1 - _COMMON - _REPOSITORY - _SESSION - _TOPIC
        return _unit(
            np.sqrt(_COMMON) * self._centres[0] + np.sqrt(_REPOSITORY) * self._centres[1 + repository]
            + np.sqrt(_SESSION) * own + np.sqrt(_TOPIC) * topics + np.sqrt(rest) * noise
        )  # fmt: skip


def _repository(folder: Path) -> Project:
    (folder / ".git").mkdir(parents=True)
    return project_of(folder)


def _sentences(random: np.random.Generator) -> list[str]:
    invented = ["".join(word) for word in itertools.product(_SYLLABLES.split(), repeat=3)]
    words = _FUNCTION_WORDS.split() + invented + [f"{one}_{number}" for number, one in enumerate(invented)]
    chance = 1 / np.arange(2, len(words) + 2)
    picked = random.choice(len(words), (SENTENCES, SENTENCE_WORDS), p=chance / chance.sum())
    return [" ".join([words[one] for one in row]) + "." for row in picked.tolist()]


def _units(random: np.random.Generator, count: int) -> NDArray[np.float32]:
    return _unit(random.standard_normal((count, DIMENSIONS), np.float32))


def _unit(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = (matrix / np.linalg.norm(matrix, axis=1, keepdims=True)).astype(np.float32)
    return unit
