"""Keyed hashes of lines, which are stored in place of the lines: lines added to files, and error lines in outputs.

An added line, which identifies its author, is compared without white space, without a comma or semicolon at its end,
and with one kind of quotation marks, because formatters change these. An error line is compared without paths, numbers,
ids and times; lines of all programs, such as "Permission denied", do not count. Lines are hashed only while an index
is written, with its secret key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any

from indexer.json_values import list_in
from indexer.lazy_compilation import late

if TYPE_CHECKING:
    from ahocorasick_rs import AhoCorasick

#: Minimum length of a line that can tell its author. Shorter ones are brackets, `else:` and the like.
MIN_LINE_BYTES = 8
#: Number of bytes of a line's hash.
_HASH_BYTES = 6
#: Argument names of edit tools: for the replaced text and the new text; below, for the text of a whole file.
PAIRS = (("old_string", "new_string"), ("old_str", "new_str"), ("oldString", "newString"), ("oldText", "newText"))
_WHOLE_TEXT_KEYS = ("content", "file_text", "new_source")
_QUOTES = bytes.maketrans(b"'`", b'""')
_FILE_HEADINGS = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")

_key = b""


@contextmanager
def hashing_lines(key: bytes) -> Iterator[None]:
    """Switch on the hashing of lines, with `key`, for logs that are read in this block."""
    global _key  # noqa: PLW0603 - readers are called in many ways, and there is one index
    before, _key = _key, key
    try:
        yield
    finally:
        _key = before


def key_in_use() -> bytes:
    """Return the key with which `hashing_lines` hashes lines in this block; empty if lines are not hashed."""
    return _key


def comparable_lines(text: str) -> list[bytes]:
    """Return the lines of a text for comparison: without white space and last comma, and with one kind of quotes."""
    bare = text.encode("utf-8", "replace").translate(_QUOTES, b" \t\r\f\v")
    return [line.rstrip(b",;") for line in bare.split(b"\n")]


def line_hashes(lines: Iterable[bytes], key: bytes) -> list[bytes]:
    """Return the hashes of those `lines` (from `comparable_lines`) that are long enough to identify their author."""
    return [blake2b(line, digest_size=_HASH_BYTES, key=key).digest() for line in lines if len(line) >= MIN_LINE_BYTES]


def added_line_hashes(given: Mapping[str, Any] | str, patch: str, paths: Iterable[str]) -> tuple[bytes, ...]:
    """Return for each of `paths` the joined hashes of the lines that an edit adds to it; empty unless lines are hashed.

    `given` is the call's input, and `patch` the patch in it that names the paths, or "".
    """
    if not _key:
        return ()
    if patch:
        files = _patched(patch)
        return tuple(_joined(*files.get(path, ([], []))) for path in paths)
    if isinstance(given, str):
        return ()
    old, new = list[bytes](), list[bytes]()
    for one in (given, *list_in(given.get("edits"))):
        for before, after in PAIRS if isinstance(one, Mapping) else ():
            if isinstance(text := one.get(after), str):
                new += comparable_lines(text)
                old += comparable_lines(text) if isinstance(text := one.get(before), str) else ()
    if not new:
        new = comparable_lines(next((given[name] for name in _WHOLE_TEXT_KEYS if isinstance(given.get(name), str)), ""))
    return tuple(_joined(old, new) for _ in paths)


def _joined(old: Iterable[bytes], new: Iterable[bytes]) -> bytes:
    """Return the joined hashes of the lines in `new` that are not in `old`, one hash for each different line."""
    gone = set(old)
    return b"".join(line_hashes([line for line in dict.fromkeys(new) if line not in gone], _key))


def _patched(patch: str) -> dict[str, tuple[list[bytes], list[bytes]]]:
    """Return (removed lines, added lines) of each file in a patch, by its name, as `comparable_lines`."""
    files: dict[str, tuple[list[str], list[str]]] = {}
    old, new = list[str](), list[str]()
    for line in patch.splitlines():
        if line.startswith(_FILE_HEADINGS):
            name = line.partition(": ")[2].strip()
            if not line.startswith("*** Move"):
                old, new = [], []
            files[name] = (old, new)
        elif line[:1] == "+":
            new.append(line[1:])
        elif line[:1] == "-":
            old.append(line[1:])
    return {
        name: (comparable_lines("\n".join(old)), comparable_lines("\n".join(new))) for name, (old, new) in files.items()
    }


#: Maximum number of error lines of an output; and how many characters at its beginning and at its end are searched.
MAX_ERROR_LINES, _BEGINNING_CHARACTERS, _ENDING_CHARACTERS = 12, 8_000, 12_000
_MAX_LINE_CHARACTERS = 1_000
#: Words that show that a line is an error line, in lower case.
_TELLING = (
    "error|err!|exception|fail|fatal|panic|cannot|can't|couldn|could not|unable|not |no such|denied|refus|undefined|"
    "unexpected|invalid|missing|unknown|unrecognized|mismatch|conflict|timeout|timed out|assert|expected|must |already|"
    "require"
)
_COLORS = late(r"\x1b\[[0-9;?]*[A-Za-z]")
#: Lines that quote code or a stack, and decorations of test runners and formatters.
_QUOTED = late(r"[\d\s]*[|│]|\s*(?:[>+•·]|at\s|-\s|#\s|hint:|\$\s)")
_CHANGING = late(
    r"(?P<U>\b[a-z][a-z0-9+.-]*://[^\s'\"]+)"
    r"|(?P<T>\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\w:.+]*)"
    r"|(?P<P>(?<![\w/\\])(?:[A-Za-z]:)?(?:~|[\w@%+.-]+)?(?:[/\\][\w@%+.\-\[\]]+)+[/\\]?|(?<![\w.])[\w-]+\.[a-z]{1,5}(?=:\d))"
    r"|(?P<H>\b(?=\d*[a-fx])(?=[a-f]*\d)(?:0x)?[0-9a-f]{7,}(?:-[0-9a-f]{4,})*\b)"
    r"|(?P<N>\d+(?:[.,:]\d+)*(?:ms|[smhk%]|[kmg]i?b)?\b|\d+)",
    re.IGNORECASE,
)
_WORD = late(r"[A-Za-z_$][A-Za-z_$-]{2,}")
#: A name of code, as opposed to a word of a sentence.
_NAME = late(r"[a-z][A-Z]|\w[-_$]\w|\w{12}")
#: Words in errors of all programs. A line that has only these does not identify an error.
_COMMON_WORDS = (
    "abort|aborted|access|again|all|already|and|any|are|argument|arguments|automatic|bad|bash|because|been|before|"
    "bin|broken|but|can|cannot|check|code|command|commit|complete|conflict|connection|content|could|couldn|denied|"
    "did|directories|directory|does|doesn|error|errors|exception|execute|exist|exists|exited|expected|fail|failed|"
    "failing|fails|failure|fatal|file|files|find|fix|following|for|fork|found|from|get|git|got|has|have|help|hook|"
    "hooks|host|husky|info|input|invalid|is|its|known|line|lines|lint|list|log|make|many|merge|message|missing|"
    "module|more|must|name|names|need|needed|network|none|not|npm|null|number|object|one|only|open|operation|"
    "option|options|or|output|package|parent|passed|path|permission|permitted|please|possible|pre-commit|process|"
    "push|read|refs|refused|repository|request|required|resolve|result|run|running|script|see|set|should|skipped|"
    "some|status|still|string|such|sudo|syntax|task|tasks|terminated|test|tests|than|that|the|then|there|this|"
    "time|timed|timeout|too|try|unable|undefined|unexpected|unknown|unrecognized|usage|use|used|using|value|"
    "version|warning|was|were|when|with|without|write|wrong|you|your|zsh"
)
_IS_COMMON = frozenset(_COMMON_WORDS.split("|"))


def line_shape(line: str) -> str:
    """Return a line without paths, numbers, ids and times. Error lines are compared in this form."""
    line = _CHANGING.sub(lambda found: found.lastgroup or "", line[:_MAX_LINE_CHARACTERS])
    return " ".join(line.split())


def error_signatures(output: str) -> list[str]:
    """Return the shapes (see `line_shape`) of those error lines in an output that identify an error, in order."""
    found = (line_shape(line) for line in _telling(output) if not _QUOTED.match(line))
    return list(islice(dict.fromkeys(line for line in found if _is_its_own(line)), MAX_ERROR_LINES))


def error_lines(output: str) -> Iterator[str]:
    """Yield the error lines in an output verbatim, including lines that every program prints."""
    yield from (line[:_MAX_LINE_CHARACTERS] for line in islice(dict.fromkeys(_telling(output)), MAX_ERROR_LINES))


@cache
def _searched() -> AhoCorasick:
    """Return a search for all words such as "error" in one pass. A regular expression takes four times as long."""
    from ahocorasick_rs import AhoCorasick

    return AhoCorasick(_TELLING.split("|"))


def _telling(output: str) -> Iterator[str]:
    if len(output) > _BEGINNING_CHARACTERS + _ENDING_CHARACTERS:
        output = f"{output[:_BEGINNING_CHARACTERS]}\n{output[-_ENDING_CHARACTERS:]}"
    if "\x1b" in output:
        output = _COLORS.sub("", output)
    lower, end = output.lower(), 0
    if len(lower) != len(output):  # as a few letters do
        output = lower
    for _, first, behind in _searched().find_matches_as_indexes(lower):
        if first >= end:
            begin = output.rfind("\n", 0, first) + 1
            end = (output.find("\n", behind) + 1 or len(output) + 1) - 1
            yield output[begin:end]


def text_hashes(lines: Iterable[str], key: bytes) -> list[bytes]:
    """Return the hash of each line, in order."""
    return [blake2b(line.encode("utf-8", "replace"), digest_size=_HASH_BYTES, key=key).digest() for line in lines]


def split_hashes(joined: bytes) -> list[bytes]:
    """Split `joined` into hashes of equal length."""
    return [joined[start : start + _HASH_BYTES] for start in range(0, len(joined), _HASH_BYTES)]


def _is_its_own(line: str) -> bool:
    """Return True if a line identifies an error: it has two uncommon words, or one name such as ``readFile``."""
    words = {word for word in _WORD.findall(line) if word.lower() not in _IS_COMMON}
    return len(words) >= 2 or any(_NAME.search(word) for word in words)
