"""Children that read logs ahead: reading keeps one processor core busy, and there are several.

They are asked on their standard input and answer on their standard output, in pickles that nobody else can write. A
child ends when its input does, so none outlives the process that asks, however that ends. What a child cannot do,
because it could not be started, has died or met an error, is left to the one who asks: its answer is `None`.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Self

#: Children pay where there is more to read than this: starting one takes a quarter of a second.
WORTH_BYTES = 32 << 20
#: One process writes the index; more readers than this would wait for it.
MOST = 3
#: The package is found beside this file and nowhere else: the current directory never chooses the program.
_CODE = "import sys; sys.path.insert(0, sys.argv[1]); from {module} import {function} as serve; serve()"


def children_for(size: int) -> int:
    """How many children should read so many bytes: none where they would only take the cores from others' work."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    idle = round(cores - os.getloadavg()[0])
    return min(idle, MOST) if idle > 1 and size >= WORTH_BYTES else 0


def ahead(module: str, function: str, questions: Iterable[object], children: int) -> Generator[Any, None, None]:
    """The answers of ``module.function`` to `questions`, in order, each child being asked one at a time."""
    questions = iter(questions)
    with ExitStack() as stack:
        asked: deque[_Child] = deque()
        for question in islice(questions, children):
            child = stack.enter_context(_Child(module, function))
            child.ask(question)
            asked.append(child)
        while asked:
            child = asked.popleft()
            answer = child.answer()
            for question in islice(questions, 1):
                child.ask(question)
                asked.append(child)
            yield answer


def serve(work: Callable[[Any], object]) -> None:
    """What a child does: answers until there are no more questions. Whoever interrupts the parent does not mean it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what is printed by accident is no answer
        while True:
            try:
                question = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our parent
            except EOFError:
                return
            try:
                answer = pickle.dumps(work(question), pickle.HIGHEST_PROTOCOL)
            except Exception:  # noqa: BLE001 - it comes up again where it is reported
                answer = pickle.dumps(None)
            answers.write(answer)
            answers.flush()


class _Child:
    def __init__(self, module: str, function: str) -> None:
        code = _CODE.format(module=module, function=function)
        try:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                [sys.executable, "-P", "-c", code, str(Path(__file__).parents[1])],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError:
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self._process.kill()
            with suppress(OSError):
                self._process.__exit__(None, None, None)  # closes the pipes and waits

    def ask(self, question: object) -> None:
        if self._process and self._process.stdin:
            with suppress(OSError):  # it has died: there will be no answer
                pickle.dump(question, self._process.stdin, pickle.HIGHEST_PROTOCOL)
                self._process.stdin.flush()

    def answer(self) -> Any:
        if not self._process or not self._process.stdout:
            return None
        try:
            return pickle.load(self._process.stdout)  # noqa: S301 - from our child
        except Exception:  # noqa: BLE001 - half a pickle can be an error of any kind
            return None
