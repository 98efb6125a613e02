"""What differs from run to run in an answer, in the same words each time.

The demo's own ids and times are the same every time and stay. In this order, everywhere, also inside longer texts:

* the home is ``~``, and a folder that is named after a directory is named after that; the checkout is ``<checkout>``,
  the Python that runs is ``<python>``, our program beside it ``<smart-fork>``, the host is ``<host>``;
* an id that the demo has not made is ``<id 1>``, a worker's is ``<claude 1>``, a commit is ``<commit 1>``, a snapshot's is
  ``<snapshot 1>``, numbered as they appear in the answer;
* a time that is later than the demo is ``<time>``, a date ``<date>``;
* a fraction is ``<number>``, also within a sentence: scores and seconds; so is the number of a process, and what stands under one of the keys in
  `MEASURED`;
* our own version is ``<version>``.

Keys keep their order, for it is part of the answer.
"""

from __future__ import annotations

import getpass
import json
import re
import shlex
import socket
import sys
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from smart_fork.agents.claude.log_files import slug
from smart_fork.system.version import own_version

#: When the demo is told: a while ago on every machine.
NOW = datetime(2025, 6, 15, 12, tzinfo=UTC)
CHECKOUT = Path(__file__).parents[2]
#: Whole numbers that depend on the machine, or on which version of a library made a file.
MEASURED = frozenset({"bytes", "bytes_read", "copy_bytes", "pid", "port", "seed", "seconds", "size", "started_in_ms"})

_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_WORKER = re.compile(r"\b(claude|codex)-(?:fork-)?([0-9a-f]{6,})\b")
_SNAPSHOT = re.compile(r"\b\d{8}T\d{6,}Z?(?:[-.]\w+)*\b")
_COMMIT = re.compile(r"\b[0-9a-f]{40}\b|(?<=commit )[0-9a-f]{10}\b")
_PROCESS = re.compile(r"\bprocess \d+\b")
#: A program in Python is called otherwise where a shell has started it, for a path with blanks.
_PROGRAM = re.compile(r"(?<=process <number> )\((?:claude|python[\d.]*)\)")
_FRACTION = re.compile(r"(?<![\w.-])\d\.\d\d\b(?!\.\d)")
_TIME = re.compile(r"\b(20\d\d-\d\d-\d\d)[T ]\d\d[:-]\d\d(?:[:-]\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?")
_DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")


class Normal:
    """Makes answers of one demo's home alike; `known` are the ids that the demo has made."""

    def __init__(self, home: Path, known: Collection[str]) -> None:
        self._known = frozenset(known)
        python = Path(sys.executable)
        self._words = {
            str(home): "~",
            str(home.resolve()): "~",
            slug(str(home.resolve())): "-home",
            str(python.with_name("smart-fork")): "<smart-fork>",
            shlex.quote(str(python)): "<python>",
            str(python): "<python>",
            str(python.resolve()): "<python>",
        }
        # A checkout at `/src` is not the middle of `~/app/src/main.py`.
        self._checkout = re.compile(rf"(?<![\w.~>-]){re.escape(str(CHECKOUT))}(?![\w-])")
        # A preview may end in the middle of it.
        self._begun = re.compile(rf"{re.escape(str(home.resolve())[:60])}[\w/-]*\.\.\.")
        self._host = socket.gethostname()

    def text(self, answer: Any) -> str:
        """An answer as a golden file has it."""
        return json.dumps(self.value(answer), ensure_ascii=False, indent=2) + "\n"

    def value(self, answer: Any) -> Any:
        """The same answer in the same words."""
        return _Numbered(self).value(answer)

    def words(self, text: str, numbered: _Numbered) -> str:
        text = self._begun.sub("~...", text)
        for theirs, ours in sorted(self._words.items(), key=lambda pair: -len(pair[0])):
            text = text.replace(theirs, ours)
        text = self._checkout.sub("<checkout>", text)
        text = _PROGRAM.sub("(<program>)", _PROCESS.sub("process <number>", text))
        text = _FRACTION.sub("<number>", text)
        text = text.replace(own_version(), "<version>").replace(f"/{getpass.getuser()}/", "/<user>/")
        text = _UUID.sub(lambda found: found[0] if found[0] in self._known else numbered.name("id", found[0]), text)
        text = _WORKER.sub(lambda found: numbered.name(found[1], found[0]), text)
        text = _SNAPSHOT.sub(lambda found: numbered.name("snapshot", found[0]), text)
        text = _COMMIT.sub(lambda found: numbered.name("commit", found[0]), text)
        return _TIME.sub(lambda found: found[0] if found[1] <= f"{NOW:%Y-%m-%d}" else "<time>", text)

    def page(self, page: str) -> str:
        """A help page, whose lines end with spaces up to the width."""
        return "\n".join(line.rstrip() for line in self.words(page, _Numbered(self)).splitlines()) + "\n"

    def is_host(self, text: str) -> bool:
        return text == self._host


class _Numbered:
    """What has been named in one answer."""

    def __init__(self, normal: Normal) -> None:
        self._normal = normal
        self._names: dict[str, str] = {}

    def name(self, kind: str, found: str) -> str:
        many = sum(name.startswith(f"<{kind} ") for name in self._names.values())
        return self._names.setdefault(found, f"<{kind} {many + 1}>")

    def value(self, answer: Any, key: str = "") -> Any:
        if isinstance(answer, dict):
            return {self.value(name): self.value(one, name) for name, one in answer.items()}
        if isinstance(answer, list):
            return [self.value(one, key) for one in answer]
        if isinstance(answer, float) or (key in MEASURED and isinstance(answer, int) and not isinstance(answer, bool)):
            return "<number>"
        if isinstance(answer, str):
            said = "<host>" if self._normal.is_host(answer) else self._normal.words(answer, self)
            return _DATE.sub(lambda found: found[0] if found[0] <= f"{NOW:%Y-%m-%d}" else "<date>", said)
        return answer
