"""A question's vectors and what is near them, made by a process of its own that starts with the command that asks.

NumPy, onnxruntime and the model take as long to load as all else that a command imports. Beside it, on another
processor, they are there by the time the command has read what it compares. What comes back is bit for bit what the
command would have made itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    from indexer.light import LightEmbedder

#: Bytes of a length and of a number, on the line between both.
_NUMBER = 8
#: An answer begins with one of these.
_DONE, _FAILED = b"+", b"-"
_EMBED, _COMPARE = b"e", b"c"
#: -P: nothing is imported from the directory that we happen to be in.
_COMMAND = (sys.executable, "-P", "-c", "from indexer.question_process import main; main()")

_begun: list[QuestionProcess] = []


class GoneError(Exception):
    """It has ended, or could not do what it was asked for: whoever asks does it."""


class QuestionProcess:
    """A process that begins to load the default model as soon as it is made, and ends when nobody can ask it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C on a terminal is for us: we close the line
        )  # fmt: skip
        self._lines = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)
        self._turn = threading.Lock()

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """The float32 vectors of few texts, as `Embedder.embed` makes them.

        Raises:
            GoneError: it has not.
        """
        return _pieces(self._ask(_EMBED + json.dumps(list(texts)).encode()), len(texts))

    def compare(self, codes: bytes, questions: Sequence[bytes]) -> bytes:
        """As `indexer.store.nearest.compared`.

        Raises:
            GoneError: it has not.
        """
        return self._ask(_COMPARE + len(questions).to_bytes(_NUMBER) + _framed(b"".join(questions)) + codes)

    def close(self) -> None:
        """Let it end, and wait for that: nothing is left of it for what this process may become."""
        with self._turn:
            for line in self._lines:
                with suppress(OSError):
                    line.close()
            self._process.kill()  # it may be in the middle of what nobody wants any more
            self._process.wait()

    def _ask(self, body: bytes) -> bytes:
        asked, answers = self._lines
        with self._turn:
            try:
                asked.write(_framed(body))
                asked.flush()
                answer = _read(answers)
            except (OSError, EOFError, ValueError) as error:  # a line that is closed is a ValueError
                raise GoneError(str(error)) from error
        if answer[:1] != _DONE:
            raise GoneError(answer[1:].decode("utf-8", "replace"))
        return answer[1:]


def begin() -> None:
    """Start the one process that this one will want. Where it cannot be started, nobody finds it."""
    with suppress(OSError):
        _begun.append(QuestionProcess())


def begun() -> QuestionProcess | None:
    """The process that was begun, for the one who closes it."""
    return _begun.pop() if _begun else None


def _framed(body: bytes) -> bytes:
    return len(body).to_bytes(_NUMBER) + body


def _read(line: IO[bytes]) -> bytes:
    """What comes next.

    Raises:
        EOFError: nothing does.
    """
    size = int.from_bytes(head) if len(head := line.read(_NUMBER)) == _NUMBER else None
    if size is None or len(body := line.read(size)) != size:
        raise EOFError("the other process is gone")
    return body


def _pieces(joined: bytes, count: int) -> list[bytes]:
    size = len(joined) // count
    return [joined[start : start + size] for start in range(0, size * count, size)]


def main() -> None:
    """The process: answers what comes in on its standard input, until that is closed."""
    asked, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    embedder = _loaded()
    with suppress(EOFError, OSError):
        while True:
            answers.write(_framed(_answered(_read(asked), embedder)))
            answers.flush()
            from indexer.store import nearest  # noqa: F401 - while nobody waits: it is asked to compare next
    os._exit(0)  # the model's libraries take their time to be taken down


def _loaded() -> LightEmbedder:
    from indexer.light import LightEmbedder

    embedder = LightEmbedder()
    with suppress(Exception):  # told to whoever asks
        embedder.load()
    return embedder


def _answered(body: bytes, embedder: LightEmbedder) -> bytes:
    try:
        kind, rest = body[:1], body[1:]
        if kind == _EMBED:
            return _DONE + embedder.embed(json.loads(rest)).tobytes()
        from indexer.store.nearest import compared

        count, size = (int.from_bytes(rest[start : start + _NUMBER]) for start in (0, _NUMBER))
        rest = rest[2 * _NUMBER :]
        return _DONE + compared(rest[size:], _pieces(rest[:size], count))
    except Exception as error:  # noqa: BLE001 - told to whoever asks
        return _FAILED + (str(error) or type(error).__name__).encode("utf-8", "replace")
