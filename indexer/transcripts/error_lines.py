"""The lines of a command's output that tell what went wrong, as keyed hashes: the same error is found by them.

A line counts without what differs from one time to the next: paths, numbers, ids, times. Lines that every program
prints, such as "Permission denied", are no error's own. As with authored lines, the text is not kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Self

from indexer.lazy import late
from indexer.transcripts.commands import simple_commands, unquoted

if TYPE_CHECKING:
    from ahocorasick_rs import AhoCorasick

#: The bytes of a line's hash.
SIZE = 6
#: Of an output, so many telling lines at most, looked for in so many characters at its beginning and at its end.
MOST_LINES, _BEGINNING, _ENDING = 12, 8_000, 12_000
_LONGEST = 1_000
#: In lower case, what a line has that tells something.
_TELLING = (
    "error|err!|exception|fail|fatal|panic|cannot|can't|couldn|could not|unable|not |no such|denied|refus|undefined|"
    "unexpected|invalid|missing|unknown|unrecognized|mismatch|conflict|timeout|timed out|assert|expected|must |already|"
    "require"
)
_COLORS = late(r"\x1b\[[0-9;?]*[A-Za-z]")
#: Lines that quote code or a stack, and what test runners and formatters print around it.
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
#: A word that is no word of a sentence.
_NAME = late(r"[a-z][A-Z]|\w[-_$]\w|\w{12}")
#: Words of errors of every program: a line of these alone is no error's own.
_COMMON = (
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
#: Programs that only look or that only prepare: an error of theirs is of the moment, and they end none.
_ASIDE = (
    "[|[[|awk|basename|bat|cat|cd|column|command|cut|date|diff|dirname|du|echo|egrep|env|exit|export|fd|fgrep|"
    "file|find|grep|head|jq|kill|less|ls|lsof|mkdir|nl|od|pgrep|pkill|popd|printf|ps|pushd|pwd|read|realpath|rg|"
    "sed|set|sleep|sort|source|stat|tail|tee|test|touch|tr|trap|tree|true|false|type|umask|uniq|unset|wait|wc|"
    "whereis|which|xxd|.|:"
)
_IS_COMMON, _IS_ASIDE = frozenset(_COMMON.split("|")), frozenset(_ASIDE.split("|"))
_LOOKS = {
    ("git", one) for one in ("blame", "branch", "diff", "fetch", "log", "ls-files", "rev-parse", "show", "status")
}
_SUBCOMMAND = late(r"[\w:./-]{1,80}")
#: What commands are called that change something. Those of git hardly ever end an error.
_CHANGES = late(
    r"\b(?:add|auth|build|checkout|chmod|chown|clean|config|create|down|download|fix|fmt|format|gen|generate|get|i|init"
    r"|install|kill|link|ln|login|migrate|mv|cp|patch|prune|pull|rebase|reload|remove|reset|restart|restore|rm|seed|setup"
    r"|start|stash|stop|sync|tidy|touch|unset|up|update|upgrade|use)\b"
)
_BEHIND = late(r"[|;]")
_MOST_COMMANDS = 12


class Commands(tuple[tuple[str, ...], ...]):
    """The words of a line's commands, without options; none of those that only look or prepare."""

    __slots__ = ()

    @classmethod
    def of(cls, line: str) -> Self:
        """Return the commands of a line."""
        return cls(dict.fromkeys(islice(_commands(line), _MOST_COMMANDS)))

    def are_again(self, other: Commands) -> bool:
        """Tell if a line is another one again: it runs the same programs, or nearly the same words."""
        return {words[:2] for words in self} <= {words[:2] for words in other} or self.are_alike(other)

    def are_alike(self, other: Commands) -> bool:
        """Tell if two lines have most of their words in common."""
        words, others = ({word for words in line for word in words} for line in (self, other))
        return 2 * len(words & others) > len(words | others)

    def change(self) -> bool:
        """Tell if they say that they change what later ones find."""
        named = (word for words in self if words[0] != "git" for word in words[:3])
        return any(_SUBCOMMAND.fullmatch(word) and _CHANGES.search(word) for word in named)

    @staticmethod
    def hide_the_end(line: str) -> bool:
        """Tell if the exit status of a line can be that of something behind the command."""
        return _BEHIND.search(unquoted(line)) is not None


def plain(line: str) -> str:
    """Return a line as it is compared."""
    line = _CHANGING.sub(lambda found: found.lastgroup or "", line[:_LONGEST])
    return " ".join(line.split())


def telling(output: str) -> list[str]:
    """Return the plain lines that tell what went wrong, in order; none that any program could have printed."""
    if len(output) > _BEGINNING + _ENDING:
        output = f"{output[:_BEGINNING]}\n{output[-_ENDING:]}"
    if "\x1b" in output:
        output = _COLORS.sub("", output)
    found = (plain(line) for line in _telling(output) if not _QUOTED.match(line))
    return list(islice(dict.fromkeys(line for line in found if _is_its_own(line)), MOST_LINES))


def error_lines(output: str) -> Iterator[str]:
    """Yield the lines of an output that tell what went wrong, also common ones, as they are."""
    if len(output) > _BEGINNING + _ENDING:
        output = f"{output[:_BEGINNING]}\n{output[-_ENDING:]}"
    found = _COLORS.sub("", output) if "\x1b" in output else output
    yield from (line[:_LONGEST] for line in islice(dict.fromkeys(_telling(found)), MOST_LINES))


@cache
def _searched() -> AhoCorasick:
    """Return a search for all telling words together. A pattern of as many alternatives takes four times as long."""
    from ahocorasick_rs import AhoCorasick

    return AhoCorasick(_TELLING.split("|"))


def _telling(output: str) -> Iterator[str]:
    lower, end = output.lower(), 0
    if len(lower) != len(output):  # as a few letters do
        output = lower
    for _, first, behind in _searched().find_matches_as_indexes(lower):
        if first >= end:
            begin = output.rfind("\n", 0, first) + 1
            end = (output.find("\n", behind) + 1 or len(output) + 1) - 1
            yield output[begin:end]


def hashed(lines: Iterable[str], key: bytes) -> list[bytes]:
    """Return the hash of each of these lines."""
    return [blake2b(line.encode("utf-8", "replace"), digest_size=SIZE, key=key).digest() for line in lines]


def parted(joined: bytes) -> list[bytes]:
    """Return the hashes in their joined form."""
    return [joined[start : start + SIZE] for start in range(0, len(joined), SIZE)]


def is_aside(program: str) -> bool:
    """Return True if a program only looks, or only prepares."""
    return program in _IS_ASIDE


def _commands(line: str) -> Iterator[tuple[str, ...]]:
    for program, *given in simple_commands(line):
        words = (program, *(word for word in given if word[:1] != "-"))
        if program and program not in _IS_ASIDE and words[:2] not in _LOOKS:
            yield words


def _is_its_own(line: str) -> bool:
    """Return True if it has at least two words of its own, or one that is a name of code."""
    words = {word for word in _WORD.findall(line) if word.lower() not in _IS_COMMON}
    return len(words) >= 2 or any(_NAME.search(word) for word in words)
