"""What a line of a shell runs, as far as it can be told without running it: its simple commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from indexer.patterns import late

#: More of one command is not looked at: a file that is written by it.
_MAX_CHARACTERS, _MAX_DEPTH = 20_000, 4
#: What parts two commands of one line.
_PARTS = ";&|()\n"
#: What parts two words of one command.
_BETWEEN = " \t\r"
#: A comment, what parts commands, or a word. To `shlex`, which does the same slowly, a comment goes with its line end.
_COMMENT = r"#[^\n]*\n?"
_WORDS = late(
    rf"{_COMMENT}|[{re.escape(_PARTS)}]+|"
    rf"(?:[^{re.escape(_PARTS + _BETWEEN)}#'\"\\]++|'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.)+",
    re.DOTALL,
)
#: Quoted parts of a word, each of which is closed.
_QUOTES = late(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|\\(.)", re.DOTALL)
_CLOSED = late(rf"(?>(?:{_COMMENT}|[^#'\"\\]++|'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.)*)", re.DOTALL)
_ESCAPED = late(r"\\([\"\\])")
_HERE_DOCUMENT = late(r"<<-?\s*(['\"]?)(\w+)\1(.*?)\n.*?^\s*\2\s*$", re.DOTALL | re.MULTILINE)
_JOINED_OUTPUT = late(r"\d*>&\d*-?|&>>?\s*\S+|\d*>>?\s*/dev/null")
_CONTINUED = late(r"\\\r?\n")
_SUBSTITUTED = late(r"\$\(([^()]*)\)|`([^`]*)`")
_ASSIGNMENT = late(r"\w+=")
_SHELLS = {"bash", "sh", "zsh", "dash", "fish", "ksh"}
_QUOTED = late(r"'[^']*'|\"(?:[^\"\\\\]|\\\\.)*\"", re.DOTALL)
_KEYWORDS = {"if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "time", "exec", "command", "eval"}
#: Programs that run another one, which stands behind their options.
_RUNNERS = {
    "env", "sudo", "doas", "nohup", "nice", "ionice", "setsid", "stdbuf", "timeout", "gtimeout", "xargs", "caffeinate",
    "uv", "uvx", "pipx", "poetry", "pdm", "hatch", "rye", "pixi", "mise", "direnv", "nix", "npx",
}  # fmt: skip
_SUBCOMMANDS = {"run", "tool", "exec", "x"}
_WITH_VALUE = {"--from", "--with", "--python", "-p", "-u", "-n", "-C", "--directory", "--project", "--spec", "-s", "-k"}
_PATCHES = ("input", "patch", "patchText")
_DURATION = late(r"\d+(?:\.\d+)?[smhd]?")


def simple_commands(line: str, depth: int = 0) -> Iterator[tuple[str, ...]]:
    """The words of each command that `line` runs, its program first, without what merely runs another one."""
    if depth > _MAX_DEPTH:
        return
    line = _HERE_DOCUMENT.sub(r"\3", _CONTINUED.sub(" ", line[:_MAX_CHARACTERS]))
    for inner in _SUBSTITUTED.findall(line):
        yield from simple_commands("".join(inner), depth + 1)
    for words in _parted(_JOINED_OUTPUT.sub(" ", line)):
        command = _without_runners(words)
        if not command:
            continue
        if _name(command[0]) in _SHELLS and (script := _script_of(command)):
            yield from simple_commands(script, depth + 1)
        else:
            yield (_name(command[0]), *command[1:])


def unquoted(line: str) -> str:
    """`line` without what stands between quotation marks or in here-documents, and without joined outputs."""
    line = _HERE_DOCUMENT.sub(r"\3", _CONTINUED.sub(" ", line[:_MAX_CHARACTERS]))
    return _JOINED_OUTPUT.sub(" ", _QUOTED.sub("''", line))


def command_of(arguments: Mapping[str, object]) -> str:
    """The command line in the arguments of a shell's call."""
    command = arguments.get("command") or arguments.get("cmd") or ""
    if isinstance(command, list):
        words = [str(word) for word in command[:100]]
        # ["bash", "-lc", "the command"]: the shell in front says nothing.
        command = words[-1] if len(words) == 3 and words[1] in ("-c", "-lc") else " ".join(words)
    return str(command)


def patch_of(arguments: Mapping[str, object]) -> str:
    """The patch in the arguments of a call, by the names that agents give it; empty where there is none."""
    return next((text for name in _PATCHES if isinstance(text := arguments.get(name), str) and text), "")


def _parted(line: str) -> Iterator[list[str]]:
    try:
        words = _words(line)
    except ValueError:  # a quotation mark that is never closed
        yield from (part.split() for part in re.split(f"[{re.escape(_PARTS)}]+", line))
        return
    part: list[str] = []
    for word in words:
        if not word or word.strip(_PARTS):  # an empty one is given as such: it parts nothing
            part.append(word)
        else:
            yield part
            part = []
    yield part


def _words(line: str) -> list[str]:
    """Return the words of `line` without comments, and what parts them, as `shlex` would.

    Raises:
        ValueError: a quotation mark is never closed.
    """
    if not _CLOSED.fullmatch(line):
        raise ValueError("a quotation mark is never closed")
    found = (word for word in _WORDS.findall(line) if word[:1] != "#")
    return [_QUOTES.sub(_unquoted, word) if "'" in word or '"' in word or "\\" in word else word for word in found]


def _unquoted(found: re.Match[str]) -> str:
    alone, quoted, escaped = found.groups()
    return alone or escaped or _ESCAPED.sub(r"\1", quoted or "")


def _without_runners(words: Sequence[str]) -> list[str]:
    rest = list(words)
    while rest:
        if _ASSIGNMENT.match(rest[0]) or rest[0] in _KEYWORDS:
            del rest[0]
        elif _name(rest[0]) in _RUNNERS:
            del rest[0]
            while rest and (rest[0].startswith("-") or rest[0] in _SUBCOMMANDS or _DURATION.fullmatch(rest[0])):
                del rest[: 2 if rest[0] in _WITH_VALUE else 1]
        else:
            break
    return rest


def _script_of(command: Sequence[str]) -> str:
    """What a shell is given to run with ``-c``."""
    place = next((i for i, word in enumerate(command) if re.fullmatch(r"-\w*c", word)), None)
    return command[place + 1] if place is not None and place + 1 < len(command) else ""


def _name(word: str) -> str:
    return word.rpartition("/")[2]
