"""The default embedding model (`LightEmbedder`, `ProcessEmbedder`), and the choice of the embedder to use.

`LightEmbedder` runs without PyTorch, a fraction of a second after the start. ``minilm.onnx`` is the model's graph
without weights (``scripts/minilm_graph.py`` makes it). onnxruntime maps the packaged weights, whose SHA-256 is
verified, into memory, so that processes share them. The vectors equal those of sentence-transformers within 1e-5.

`ProcessEmbedder` embeds many texts in another process, which ends when it has been idle: PyTorch keeps most of a
gigabyte, and more with every new shape of a batch.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import orjson

from indexer.embedder import (
    DEFAULT_MODEL,
    DEFAULT_WEIGHTS_SHA256,
    Embedder,
    ModelUnavailableError,
    SentenceTransformerEmbedder,
    has_frameworks,
    loading,
    packaged_model,
)
from indexer.environment import Setting
from indexer.locks import processors, step_back

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    Matrix = NDArray[np.float32]

#: The environment variable that switches onnxruntime's telemetry off, with the value 1.
_TELEMETRY = "ORT_DISABLE_TELEMETRY"
DIMENSIONS, MAX_TOKENS = 384, 256
#: Maximum number of tokens of texts that are embedded in one call: computing them takes as long as reading the weights.
GROUP_TOKENS = 128
GRAPH = Path(__file__).with_name("minilm.onnx")
#: The option of onnxruntime for the folder with the weights that a graph names.
_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"


class LightEmbedder:
    """The default model, run by onnxruntime. It embeds short texts in groups, and `threads` groups in parallel."""

    dimensions = DIMENSIONS

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self.closed = False

    @property
    def model(self) -> str:
        return f"{DEFAULT_MODEL}@{DEFAULT_WEIGHTS_SHA256[:12]}"

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Return a unit vector for each text: float32, shape (len(texts), 384)."""
        from indexer.one_thread_numpy import np

        vectors = list(self._vectors(texts))
        return np.concatenate(vectors) if vectors else np.empty((0, DIMENSIONS), np.float32)

    def load(self) -> None:
        """Load the model now, so that the first call of `embed` does not wait for it."""
        _ = self._session, self._vocabulary

    def close(self) -> None:
        """Stop embedding. A running call of `embed` fails after the group of texts on which it works."""
        self.closed = True

    def _vectors(self, texts: Sequence[str]) -> Iterator[Matrix]:
        self.load()  # once, before there are threads
        groups = self._groups(texts)
        if self._threads == 1 or len(texts) == 1:
            yield from map(self._group_vectors, groups)
            return
        with ThreadPoolExecutor(self._threads, "embed") as pool:
            yield from pool.map(self._group_vectors, groups)

    def _groups(self, texts: Iterable[str]) -> Iterator[list[list[int]]]:
        """Yield groups of texts, in order, each text as its token ids. The model embeds a group in one call."""
        group: list[list[int]] = []
        for text in texts:
            if self.closed:
                raise ModelUnavailableError("the process is ending")
            ids = self._vocabulary.ids(text)
            if group and sum(map(len, group)) + len(ids) > GROUP_TOKENS:
                yield group
                group = []
            group.append(ids)
        if group:
            yield group

    def _group_vectors(self, group: Sequence[Sequence[int]]) -> Matrix:
        if self.closed:
            raise ModelUnavailableError("the process is ending")
        from indexer.one_thread_numpy import np

        sizes = [len(ids) for ids in group]
        texts = np.repeat(np.eye(len(group), dtype=np.float32), sizes, axis=1)
        ids, places = (np.concatenate(of_each) for of_each in (group, list(map(np.arange, sizes))))
        (vectors,) = self._session.run(None, {"ids": ids, "places": places, "texts": texts})
        found: Matrix = vectors
        return found

    @cached_property
    def _folder(self) -> Path:
        return packaged_model()

    @property
    def _vocabulary(self) -> Vocabulary:
        return _vocabulary_in(self._folder)

    @property
    def _session(self) -> Any:
        return _session_in(self._folder, GRAPH)


@cache
def _vocabulary_in(folder: Path) -> Vocabulary:
    return Vocabulary(folder / "tokenizer.json", MAX_TOKENS)


def is_known(word: str) -> bool:
    """Return True if the default model's vocabulary has `word` as one token."""
    return len(_vocabulary_in(packaged_model()).ids(word)[1:-1]) == 1  # between those that begin and end it


def _onnxruntime() -> Any:
    """Import onnxruntime with its telemetry disabled, whatever the environment says.

    With telemetry, onnxruntime reports the models that it loads to its maker, and keeps a file for that in the home.
    """
    import indexer.one_thread_numpy  # noqa: F401 - before onnxruntime loads NumPy with as many threads as it likes

    before = os.environ.get(_TELEMETRY)
    os.environ[_TELEMETRY] = "1"
    try:
        import onnxruntime  # noqa: TID251 - the one place
    except ImportError as error:
        raise ModelUnavailableError(f"onnxruntime cannot be imported ({error}); reinstall smart-fork") from error
    finally:
        if before is None:
            del os.environ[_TELEMETRY]
        else:
            os.environ[_TELEMETRY] = before
    return onnxruntime


@cache
def _session_in(folder: Path, graph: Path) -> Any:
    weights = (folder / "model.safetensors").resolve()  # onnxruntime follows no link out of the folder
    onnxruntime = _onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # it works in the thread that asks
    options.log_severity_level = 3  # errors, which are raised as well
    # The graph is as it is to be run: to look for a better one takes as long as half a question, and finds none.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry(_WEIGHTS_FOLDER, str(weights.parent))
    try:
        return onnxruntime.InferenceSession(graph.read_bytes(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ModelUnavailableError(f"onnxruntime cannot load the packaged model: {error}") from error


# The tokens of a text, told by the model's own tokenizer with as much of its vocabulary as the text needs.
#
# To hand it all of the 30,000 words takes longer than to embed a question.


class Vocabulary:
    """A WordPiece tokenizer, read from a `tokenizer.json`. It loads only the vocabulary that a text needs.

    A text with more than `limit` tokens is truncated.
    """

    def __init__(self, file: Path, limit: int) -> None:
        self._settings: dict[str, Any] = orjson.loads(file.read_bytes())
        self._model: dict[str, Any] = self._settings["model"]
        self._words: dict[str, int] = self._model["vocab"]
        self._special: dict[str, int] = {one["content"]: one["id"] for one in self._settings["added_tokens"]}
        self._limit = limit
        self._splitting = self._knowing({})

    def ids(self, text: str) -> list[int]:
        """Return the token ids of `text`, including the tokens that mark its start and end."""
        splitting = self._splitting
        plain = splitting.normalizer.normalize_str(text)
        words = {word for word, _ in splitting.pre_tokenizer.pre_tokenize_str(plain)}
        needed = {piece: self._words[piece] for piece in self._pieces(words)}
        found: list[int] = self._knowing(needed).encode(text).ids
        return found

    def _pieces(self, words: Iterable[str]) -> Iterator[str]:
        """Yield the vocabulary's entries into which `words` may be split. A word that is an entry is never split."""
        for word in words:
            if word in self._words:
                yield word
            elif len(word) <= self._model["max_input_chars_per_word"]:
                for start in range(len(word)):
                    prefix = self._model["continuing_subword_prefix"] if start else ""
                    for end in range(start + 1, len(word) + 1):
                        if (piece := prefix + word[start:end]) in self._words:
                            yield piece

    def _knowing(self, words: dict[str, int]) -> Tokenizer:
        from tokenizers import Tokenizer

        model = {**self._model, "vocab": self._special | words}
        tokenizer = Tokenizer.from_str(orjson.dumps({**self._settings, "model": model}).decode())
        tokenizer.no_padding()
        tokenizer.enable_truncation(self._limit)
        return tokenizer


log = logging.getLogger(__name__)

#: Below this number of texts, onnxruntime is done before PyTorch is imported.
FEW_TEXTS = 32


def configured_embedder(*, background: bool = False) -> Embedder:
    """Return the embedder of the model in ``SMART_FORK_MODEL``, or of the default model. Nothing is loaded yet.

    `background` is for a process that runs permanently, or without a person waiting. Many texts are then embedded on
    one core, and PyTorch runs in another process.
    """
    name = Setting.MODEL.text() or DEFAULT_MODEL
    if name == DEFAULT_MODEL:
        return DefaultEmbedder(background=background)
    return SentenceTransformerEmbedder(name, threads=1 if background else None)


@runtime_checkable
class ClosableEmbedder(Protocol):
    """The interface of an embedder that can be closed while it embeds."""

    def close(self) -> None:
        """Stop embedding, also in a running call."""


class DefaultEmbedder:
    """The default model: onnxruntime embeds a question immediately, and sentence-transformers embeds many texts.

    sentence-transformers is faster on a GPU and on processors with bfloat16. If it is missing or fails, onnxruntime
    embeds all texts.
    """

    dimensions = DIMENSIONS

    def __init__(self, *, background: bool = False) -> None:
        self._light = LightEmbedder(1 if background else processors())
        self._apart = background
        self._only_light = not has_frameworks()
        self._heavy: Embedder | None = None

    @property
    def model(self) -> str:
        return self._light.model

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if not self.is_light(len(texts)):
            try:
                return self._for_many().embed(texts)
            except ModelUnavailableError as error:
                if self._light.closed:
                    raise
                log.warning("onnxruntime embeds instead of sentence-transformers: %s", error)
                self._only_light = True
        return self._light.embed(texts)

    def is_light(self, count: int) -> bool:
        """Return True if onnxruntime, which starts immediately in this process, is to embed `count` texts."""
        if count == 1 or self._only_light:
            return True
        return count < FEW_TEXTS and (self._apart or self._heavy is None)

    def begin(self) -> None:
        """Start another process that loads the model for many texts, because a person waits for these texts."""
        if self._heavy is None and not self._apart and not self._only_light:
            self._apart, self._heavy = True, (process := ProcessEmbedder(waited_for=True))
            process.begin()

    def close(self) -> None:
        """Stop embedding in this process, and end the other process."""
        self._light.close()
        if isinstance(self._heavy, ClosableEmbedder):
            self._heavy.close()

    def _for_many(self) -> Embedder:
        if self._heavy is None and self._apart:
            self._heavy = ProcessEmbedder()
        elif self._heavy is None:
            self._heavy = SentenceTransformerEmbedder(DEFAULT_MODEL)
        return self._heavy


#: The embedding process ends after this time without texts. Loading the model again takes about four seconds of one
#: core.
IDLE_SECONDS = 30.0


class ProcessEmbedder:
    """The default model in another process, with low priority on one core unless it is `waited_for` by a person."""

    def __init__(self, idle: float = IDLE_SECONDS, *, waited_for: bool = False) -> None:
        self._idle, self._waited_for = idle, waited_for
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._lifeline: Connection | None = None
        self._closed = False
        self._has_loaded = False

    @property
    def model(self) -> str:
        return SentenceTransformerEmbedder(DEFAULT_MODEL).model

    @property
    def dimensions(self) -> int:
        return int(self.embed(["how long?"]).shape[1])

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with self._lock:
            try:
                return self._ask(texts)
            except (EOFError, OSError):
                self._connection = None  # it had nothing to do and has ended, or somebody has ended it
            try:
                return self._ask(texts)
            except (EOFError, OSError) as error:
                self._connection = None
                raise ModelUnavailableError("the embedding process died twice; is there enough memory?") from error

    def begin(self) -> None:
        """Start the process, which loads the model, and return immediately. `embed` reports a failure."""
        with self._lock, suppress(OSError):
            self._connect()

    def close(self) -> None:
        """End the process immediately. A running call of `embed` raises an error."""
        self._closed = True
        if (lifeline := self._lifeline) is not None:
            lifeline.close()

    def _ask(self, texts: Sequence[str]) -> NDArray[np.float32]:
        from indexer.one_thread_numpy import np

        if self._closed:
            raise ModelUnavailableError("the embedding process was ended")
        connection = self._connect()
        with nullcontext() if self._has_loaded else loading():
            connection.send_bytes(orjson.dumps(list(texts)))
            problem = connection.recv_bytes()
        self._has_loaded = True
        if problem:
            raise ModelUnavailableError(problem.decode("utf-8", "replace"))
        return np.frombuffer(connection.recv_bytes(), np.float32).reshape(len(texts), -1)

    def _connect(self) -> Connection:
        if self._connection is None:
            self._has_loaded = False
            self._connection, self._lifeline = _start(self._idle, *(["waited-for"] if self._waited_for else []))
            if self._closed:  # meanwhile
                self.close()
        return self._connection


def _start(idle: float, *more: str) -> tuple[Connection, Connection]:
    """Start an embedding process. Return two connections to it: one for texts and vectors, and one that ends it.

    The process ends when its second connection (the lifeline) is closed, as the system does when the starting process
    dies, or after `idle` seconds without a text. `more` are further arguments of its command line.
    """
    from multiprocessing.connection import Pipe  # most processes embed by themselves

    ours, its = Pipe()
    life, lifeline = Pipe(duplex=False)
    # As for a reader: as isolated as this process.
    argv = [sys.executable, "-I" if sys.flags.isolated else "-P", "-m", "indexer.default_embedder"]
    argv += [str(its.fileno()), str(life.fileno()), str(idle), *more]
    with its, life:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[its.fileno(), life.fileno()],
            start_new_session=True,  # Ctrl-C on a terminal is for us: we close the line
        )  # fmt: skip
    threading.Thread(target=process.wait, name="embedding process", daemon=True).start()
    return ours, lifeline


def answer(connection: Connection, embedder: Embedder, idle: float) -> None:
    """Embed each list of texts from `connection`, until none came for `idle` seconds or the other end is closed.

    Each reply is an error message, empty on success, followed by the bytes of the vectors.
    """
    try:
        while connection.poll(idle):
            texts = orjson.loads(connection.recv_bytes())
            try:
                vectors = embedder.embed(texts)
            except Exception as error:  # noqa: BLE001 - told to whoever asks
                connection.send_bytes((str(error) or type(error).__name__).encode("utf-8", "replace"))
                continue
            connection.send_bytes(b"")
            connection.send_bytes(vectors.tobytes())
    except (EOFError, OSError):  # nobody waits for an answer any more
        return


def _die_with(life: int) -> None:
    """End this process when the other end of the connection with the descriptor `life` is closed."""
    os.read(life, 1)
    os._exit(0)


def main() -> None:
    """Run the embedding process: ``python -m indexer.default_embedder DESCRIPTOR LIFELINE SECONDS [waited-for]``."""
    from multiprocessing.connection import Connection

    descriptor, life, idle, *waited_for = sys.argv[1:]
    threading.Thread(target=_die_with, args=(int(life),), name="lifeline", daemon=True).start()
    if not waited_for:
        step_back()
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # PyTorch's, which is not imported yet
    embedder = SentenceTransformerEmbedder(DEFAULT_MODEL)
    with suppress(Exception):  # told to whoever asks
        embedder.embed(["is it there?"])
    answer(Connection(int(descriptor)), embedder, float(idle))
    os._exit(0)  # the model's libraries take their time to be taken down


if __name__ == "__main__":
    main()
