"""Recording of calls and results while a log is read: edited and read files, names of code, purposes of commands."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from sys import intern
from typing import Any, ClassVar, NamedTuple, Protocol

from indexer.masking import NOTHING, Masked, mask, shorten
from indexer.transcripts.actions import (
    KEEPS_ITS_PLACE,
    SHELLS,
    describe,
    describe_raw,
    edited_by,
    error_note,
    lines_by,
    read_by,
    status_and_body,
    succeeded,
    worked_in,
    writes,
)  # fmt: skip
from indexer.transcripts.commands import command_of, is_ours, runs_ours, simple_commands, unquoted
from indexer.transcripts.line_hashes import error_lines, error_signatures, key_in_use, text_hashes
from indexer.transcripts.model import GivenBack, Proof, ToolCall, ToolResult, UsedTool
from indexer.transcripts.reader_state import is_path
from indexer.transcripts.symbols import MAX_SYMBOLS, Symbols
from indexer.transcripts.texts import TITLE_CHARACTERS, PersonAnswers


class CommandPurpose(NamedTuple):
    """The purpose of a command line: to commit or to test. If `hidden`, a later command decides its exit status."""

    commits: bool
    tests: bool
    hidden: bool


#: A line without any of these, in lower case, neither commits nor tests.
_NAMED = re.compile(
    r"\bcommit\b|test|specs?\b|check|verify|tox|nox|nose|jest|mocha|\bava\b|jasmine|karma|cucumber|behave|unit|pest"
    r"|ginkgo|bats|prove|busted|\bnpm t\b"
)
#: Words of which such a line has one. To look for each of them takes less time than the pattern.
_NAMES = (
    "commit", "test", "spec", "check", "verify", "tox", "nox", "nose", "jest", "mocha", "ava", "jasmine", "karma",
    "cucumber", "behave", "unit", "pest", "ginkgo", "bats", "prove", "busted", "npm t",
)  # fmt: skip
#: A shell that gets its script as an argument.
_SCRIPT = re.compile(r"\b(?:ba|z|da)?sh\s+-\w*c\b")
#: Programs that only run tests.
_TESTERS = {
    "pytest", "py.test", "tox", "nox", "nosetests", "nose2", "unittest", "jest", "vitest", "mocha", "ava", "jasmine",
    "karma", "rspec", "cucumber", "behave", "phpunit", "pest", "ctest", "gotestsum", "ginkgo", "bats", "prove",
    "busted", "nextest",
}  # fmt: skip
#: Programs that run tests with some subcommands, targets or scripts; below, subcommands that never do.
_BUILDERS = {
    "go", "cargo", "npm", "yarn", "pnpm", "bun", "deno", "composer", "make", "gmake", "just", "task", "rake", "rails",
    "bundle", "mix", "dotnet", "swift", "bazel", "bazelisk", "flutter", "dart", "xcodebuild", "zig", "gradle",
    "gradlew", "mvn", "mvnw", "turbo", "nx", "lerna", "ant", "sbt", "lein", "stack", "cabal", "dune", "meson", "hatch",
    "ng", "playwright", "cypress", "ninja", "invoke", "inv", "cmake", "mise", "pixi", "npm-run-all", "run-s",
}  # fmt: skip
_NOT_TESTING = {
    "add", "build", "build-for-testing", "clean", "create", "doc", "fmt", "get", "i", "info", "init", "install", "link",
    "list", "ls", "new", "publish", "remove", "rm", "uninstall", "update", "upgrade", "vet", "view", "why",
}  # fmt: skip
_CHECKERS = {"make", "gmake", "gradle", "gradlew", "mvn", "mvnw"}
_INTERPRETERS = re.compile(r"python[\d.]*|node|bash|sh|zsh|ruby|perl|php|tsx|ts-node|bun|deno")
_CONTAINERS = {"docker", "podman", "docker-compose", "kubectl"}
#: A name with the part "test": ``test:unit``, ``e2e-tests``, ``run_tests.sh``, ``testDebug``.
_TEST = re.compile(r"(?:.*[^a-zA-Z])?(?:[tT]ests?(?:[^a-z].*)?|[sS]pecs?(?:[^a-z].*)?)")
#: Options with which a program runs nothing.
_ONLY_LOOKS = {"--help", "-h", "--version", "--collect-only", "--co", "--listTests", "--no-run", "--dry-run"}
_GIT_VALUES = {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"}
#: What separates commands. The exit status of a line may come from the command behind it; in a pipe, normally from the
#: last.
_PARTS = re.compile(r"&&|\|\||[|;&\n]")

#: Git's report of a commit; below, its report that there was nothing to commit.
_COMMITTED = re.compile(r"^\[([^\]\n]{1,300}) ([0-9a-f]{7,64})\] ([^\r\n]*)", re.MULTILINE)
_FIRST_COMMIT = "(root-commit)"
#: The line with which git names the remote to which it pushes, before the result for each branch.
_PUSHED = re.compile(r"^To (\S{1,500})\n [ *+=!-] ", re.MULTILINE)
_NOTHING_TO_COMMIT = re.compile(r"nothing (?:added )?to commit|no changes added to commit")
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
#: Summaries of test programs with failures. Those of passed tests, below, count only if none of these is there.
_BAD = re.compile(
    r"(?<![\d.])[1-9]\d* (?:tests? )?(?:failed|failing|fail|failures?)\b|\bFail(?:ed|ures): *[1-9]|\bErrors: *[1-9]"
    r"|^(?:--- FAIL|FAIL\b|FAILED\b|FAILURES!|not ok\b)|\btest result: FAILED|\bBUILD FAIL|\bfail [1-9]\d*$"
    r"|^=+ .*\b[1-9]\d* errors?\b.* in [\d.]+",
    re.MULTILINE,
)
_GOOD = re.compile(
    r"(?<![\d.])[1-9]\d* (?:tests? )?(?:passed|passing|pass)\b|^(?:ok\b|OK\b|PASS\b|Passed!)|\btest result: ok"
    r"|(?<![\d.])[1-9]\d* (?:tests|examples|runs)\b.*\b0 failures|\bBUILD SUCCESS|\ball tests passed|\bfail 0$",
    re.MULTILINE,
)
#: Number of characters at the end of an output in which a summary is looked for.
_SUMMARY_CHARACTERS = 20_000


class PendingCommands:
    """The purposes of command lines whose results have not been read yet, by the id of their call.

    `kept` are those that an earlier reading of the log stored. `not_run` are the beginnings of results of calls that
    were not carried out.
    """

    def __init__(self, kept: Mapping[str, Sequence[bool]] | None = None, *, not_run: tuple[str, ...] = ()) -> None:
        self._not_run = not_run
        self._open = {call: CommandPurpose(*deed) for call, deed in (kept or {}).items()}

    def kept(self) -> dict[str, list[bool]]:
        """Return the purposes as JSON values. A later reading of the log continues with them."""
        return {call: list(deed) for call, deed in self._open.items()}

    def begin(self, call: str, line: str) -> None:
        """Note the purpose of the command line `line`, which `call` runs, until its result comes."""
        if deed := purpose_of(line):
            self._open[call] = deed

    def rename(self, call: str, new: str) -> None:
        """Note that the result of `call` will have the id `new`."""
        if deed := self._open.pop(call, None):
            self._open[new] = deed

    def end(self, call: str, output: str, *, said: bool | None = None) -> Proof:
        """Return what the result of `call` proves about the work. `said` is the agent's word on the call's success."""
        deed = self._open.pop(call, None)
        if deed is None:
            return Proof.NOTHING
        return proof_of(deed, output, done=succeeded(output, said=said, not_run=self._not_run))

    def __contains__(self, call: str) -> bool:
        return call in self._open


def purpose_of(line: str) -> CommandPurpose | None:
    """Return the purpose of a command line; `None` if it neither commits nor tests."""
    return _known_purpose(line) if len(line) <= _KNOWN_CHARACTERS else _purpose_of(line)


def _purpose_of(line: str) -> CommandPurpose | None:
    if not _is_named(line.lower()) or "*** Begin Patch" in line:
        return None
    bare = unquoted(line).strip()
    run = line if _SCRIPT.search(bare) else bare  # files that are written by it are long, and nothing of them is run
    if not _is_named(run):
        return None
    commands = simple_commands(run)
    commits, tests = any(map(_commits, commands)), any(map(_tests, commands))
    return CommandPurpose(commits, tests, _is_hidden(bare)) if commits or tests else None


def _is_named(line: str) -> bool:
    return any(map(line.__contains__, _NAMES)) and _NAMED.search(line) is not None


#: Maximum length of command lines with a cached purpose. Short ones are often run again.
_KNOWN_CHARACTERS = 512
_known_purpose = lru_cache(maxsize=1024)(_purpose_of)


def proof_of(deed: CommandPurpose, output: str, *, done: bool | None) -> Proof:
    """Return what the output of a command with the purpose `deed` proves. `done` is its success, `None` if unknown."""
    output = _COLOURS.sub("", output)
    sure = done and not deed.hidden
    if deed.commits and (_COMMITTED.search(output) or (sure and not _NOTHING_TO_COMMIT.search(output))):
        return Proof.COMMITTED
    if deed.tests and (shown := Proof.TESTS_PASSED if sure else _summed_up(output[-_SUMMARY_CHARACTERS:])):
        return shown
    failed = done is False and not _NOTHING_TO_COMMIT.search(output)
    return Proof.FAILED if failed else Proof.NOTHING


def commits_made(output: str) -> tuple[list[str], Masked]:
    """Return the short names of the commits that git reports in an output, and the subject of the last one.

    First commits of a repository are skipped, because templates share them.
    """
    found = list(_COMMITTED.finditer(_COLOURS.sub("", output)))
    subject = shorten(mask(found[-1][3]), TITLE_CHARACTERS) if found else NOTHING
    return [one[2] for one in found if not one[1].endswith(_FIRST_COMMIT)], subject


def pushed_to(output: str) -> str:
    """Return the URL of the remote to which git has pushed, from its output; empty if it has not pushed."""
    found = _PUSHED.search(_COLOURS.sub("", output)) if "To " in output else None
    return found[1] if found else ""


def _summed_up(output: str) -> Proof:
    if _BAD.search(output):
        return Proof.FAILED
    return Proof.TESTS_PASSED if _GOOD.search(output) else Proof.NOTHING


def _commits(words: Sequence[str]) -> bool:
    if words[0] != "git" or _ONLY_LOOKS.intersection(words):
        return False
    rest = iter(words[1:])
    for word in rest:
        if word in _GIT_VALUES:
            next(rest, None)
        elif not word.startswith("-"):
            return word == "commit"
    return False


def _tests(words: Sequence[str]) -> bool:
    program, named = words[0], [word for word in words[1:] if not word.startswith("-")]
    if _ONLY_LOOKS.intersection(words):
        return False
    if program in _TESTERS:
        return True
    if program in _CONTAINERS:
        return bool(_TESTERS.intersection(words))
    if program.startswith("python") and "-m" in words:
        return not _TESTERS.isdisjoint(words[words.index("-m") + 1 : words.index("-m") + 2])
    if program in _BUILDERS and _runs_tests(program, named):
        return True
    if _INTERPRETERS.fullmatch(program):
        script, *arguments = [word for word in named if word != "run"] or [""]
        return "--test" in words or _is_test(script) or (script.endswith("manage.py") and arguments[:1] == ["test"])
    return program not in _BUILDERS and _is_test(program) and (program != "test" or len(words) == 1)


def _runs_tests(program: str, named: Sequence[str]) -> bool:
    if named and named[0] in _NOT_TESTING:
        return False
    wanted = named[:1] if program in ("go", "cargo", "swift", "dotnet") else named
    if not _TESTERS.isdisjoint(wanted) or (program in _CHECKERS and not {"check", "verify"}.isdisjoint(wanted)):
        return True
    return (program == "npm" and named[:1] == ["t"]) or any(_is_test(word) for word in wanted if "/" not in word)


def _is_test(word: str) -> bool:
    return _TEST.fullmatch(word.rpartition("/")[2]) is not None


def _is_hidden(bare: str) -> bool:
    """Return True if a line's exit status may come from a command after its commits and tests."""
    parts = _PARTS.split(bare)
    first = next((number for number, part in enumerate(parts) if _has_purpose(part)), None)
    if first is None:  # it is run by something else
        return True
    decides = {"&&", "|"} if "pipefail" in bare else {"&&"}
    return not decides.issuperset(_PARTS.findall(bare)[first:])


def _has_purpose(part: str) -> bool:
    return any(_commits(words) or _tests(words) for words in simple_commands(part))


#: Maximum number of a session's last commits that are stored, to recognize its repository.
_MAX_COMMITS = 16


class Tools(Protocol):
    """The names of an agent's tools, and the texts by which their results are recognized."""

    #: Maps the agent's own names of tools to the names in descriptions of calls, if they differ.
    tools: ClassVar[Mapping[str, str]]
    #: The agent's own name of the tool that runs shell command lines; `None` if it has several.
    shell: ClassVar[str | None]
    #: The beginnings of results of calls that were not carried out.
    not_run: ClassVar[tuple[str, ...]]
    #: The rules by which results contain a person's answers and refusals.
    answers: ClassVar[PersonAnswers]


class CallRecorder:
    """A recorder that makes `ToolCall` and `ToolResult` objects from calls and results while a log is read.

    `facts` are what an earlier reading of the log stored. The recorder removes from them what it keeps itself.
    `opens_a_session` returns a true value if an action line names a log. The output of such a call is ignored, because
    it repeats another session.
    """

    #: True if every input that is one text gets an action line, and names of code are collected from all calls.
    thorough: ClassVar[bool] = False

    def __init__(self, facts: dict[str, Any], tools: Tools, opens_a_session: Callable[[str], object]) -> None:
        self._facts, self._tools, self._opens = facts, tools, opens_a_session
        #: False if the session is not searched: collecting names of code takes longer than reading a log.
        self.names_code = True
        self.symbols, self.wrote = Symbols(facts.pop("symbols", ())), Symbols(facts.pop("wrote", ()))
        self.ours: set[str] = set(facts.pop("ours", ()))
        self.deeds = PendingCommands(facts.pop("deeds", None), not_run=tools.not_run)
        self.commits: list[str] = facts.pop("commits", [])
        self.asked: dict[str, Any] = facts.pop("asked", {})
        self.remote: str = facts.pop("pushed_to", "")

    def kept(self) -> dict[str, Any]:
        """Return what a later reading of the log needs to continue, as JSON values."""
        known = {"symbols": list(self.symbols), "ours": sorted(self.ours), "wrote": list(self.wrote)}
        return known | {
            "deeds": self.deeds.kept(),
            "asked": self.asked,
            "commits": self.commits,
            "pushed_to": self.remote,
        }

    def share(self, others: CallRecorder) -> None:
        """Add the names of code that the recorder `others` has found in another log of the session."""
        self.symbols = Symbols(islice(chain(others.symbols, self.symbols), MAX_SYMBOLS))
        self.wrote = Symbols(islice(chain(others.wrote, self.wrote), MAX_SYMBOLS))

    def calls(self, made: Iterable[UsedTool]) -> tuple[ToolCall, ...]:
        """Record the calls `made`, and return them in order."""
        return tuple(map(self.call, made))

    def described(self, name: str, given: object) -> Masked:
        """Return the action line of a call. Unless `thorough`, an input that is one text must be a patch to get one."""
        if isinstance(given, str):
            return describe_raw(name, given) if self.thorough or edited_by(name, given) else NOTHING
        return describe(name, given) if given and isinstance(given, dict) else NOTHING

    def call(self, made: UsedTool, *, ours: bool = False) -> ToolCall:
        """Record a call, and return it. With `ours`, it counts as a question to smart-fork, whatever its tool."""
        identity, name, arguments = intern(made.id), intern(made.name), made.given
        known_as = self._tools.tools.get(name, name)
        given = arguments if isinstance(arguments, dict | str) else {}
        edits, reads = edited_by(known_as, given), read_by(known_as, given)
        action = NOTHING if ours else self.described(known_as, given)
        ours = ours or is_ours(name) or runs_ours(arguments)
        if (questions := self._tools.answers.asked_by(name, arguments)) is not None:
            self.asked[identity] = questions
        if ours or self._opens(action):
            self.ours.add(identity)
        elif self.names_code and (action or self.thorough):
            self.symbols.add_all(arguments)
            if writes(edits, given):
                self.wrote.add_all(arguments)
        if not ours and self._tools.shell in (name, None):
            self.begin(made)
        lines = lines_by(known_as, given) if edits else ()
        places = worked_in(given, *self._where()) if isinstance(given, dict) and not ours else ()
        return ToolCall(identity, name, action, ours, edits, reads, lines, places)

    def _where(self) -> tuple[str, str]:
        """Return the session's first directory, and the directory in which the agent is now."""
        began = self._facts.get("began_in", "")
        return began, self._facts.get("stands") or began

    def begin(self, made: UsedTool) -> None:
        """Note the purpose of the command line that a call runs, until the result of the call comes."""
        if isinstance(made.given, dict):
            self.deeds.begin(made.id, command_of(made.given))

    def end(self, back: GivenBack) -> Proof:
        """Return what the result `back` of a call proves about the work."""
        return self.deeds.end(back.id, back.output, said=not back.failed)

    def results(self, given_back: Iterable[GivenBack]) -> tuple[ToolResult, ...]:
        """Record the results `given_back`, and return them in order, without their outputs."""
        return tuple(map(self.result, given_back))

    def result(self, back: GivenBack) -> ToolResult:
        """Record the result of a call, and return it without its output."""
        identity, note, proof, errors, words, subject = intern(back.id), NOTHING, Proof.NOTHING, b"", NOTHING, NOTHING
        asked = self.asked.pop(identity, None)
        if identity not in self.ours:
            if self.names_code:
                self.symbols.add(back.output)
                self.symbols.add_codes(error_lines(back.output))
            note = error_note(back.output) if back.failed else NOTHING
            tried = back.id in self.deeds
            words = self._tools.answers.words_in(back.output, asked, failed=back.failed)
            proof = self.end(back)
            errors = self._errors(back, proof, tried=tried)
            made, subject = commits_made(back.output) if proof == Proof.COMMITTED else ([], NOTHING)
            self.commits = [*self.commits, *made][-_MAX_COMMITS:]
            if pushed := pushed_to(back.output):
                self.remote = mask(pushed)
        return ToolResult(identity, back.failed, note, proof, errors, words, subject)

    def _errors(self, back: GivenBack, proof: Proof, *, tried: bool) -> bytes:
        """Return the joined hashes of the error lines in a result; empty unless the call failed or was `tried`.

        `tried` marks a test or a commit, which prints such lines even on success.
        """
        key = key_in_use()
        if not key or not (tried or back.failed or proof is Proof.FAILED):
            return b""
        if back.failed and succeeded(back.output, said=False, not_run=self._tools.not_run) is None:
            return b""
        return b"".join(text_hashes(error_signatures(status_and_body(back.output)[1]), key))


#: Shells whose commands start in the session's directory. A shell that keeps its directory may be elsewhere.
_SHELLS = SHELLS - {KEEPS_ITS_PLACE} | {"local_shell_call"}
#: The directory to which a command goes first, as a plain word in which nothing is expanded.
_CD = re.compile(
    r"""\s*cd\s+(?:--\s+)?(?:"(?P<a>/[^"$`\\\n]*)"|'(?P<b>/[^'\n]*)'|(?P<c>/[^\s;&|"'$`\\*?~()<>\[\]{}]*))\s*(?:&&|;|\n|$)"""
)
#: Maximum number of different directories that are counted. With more, the session's directory is not inferred.
_MAX_DIRECTORIES = 20


class Directories:
    """A count of a session's shell commands, and of the directories in which they ran (`packed`, as JSON)."""

    def __init__(self, packed: Mapping[str, Any] | None = None) -> None:
        self.packed: dict[str, Any] = dict(packed or {"commands": 0, "ran_in": {}})

    def note(self, tool: str, arguments: object) -> None:
        """Count a call of `tool`, if this is a shell, and note the directory in its `arguments`."""
        if tool not in _SHELLS or not isinstance(arguments, dict):
            return
        self.packed["commands"] += 1
        where, ran_in = _directory(arguments), self.packed["ran_in"]
        if where and (where in ran_in or len(ran_in) < _MAX_DIRECTORIES):
            ran_in[where] = ran_in.get(where, 0) + 1

    def agreed(self) -> str:
        """Return the common directory of the session's commands; empty if most of them name no directory."""
        ran_in: Mapping[str, int] = self.packed["ran_in"]
        if not ran_in or 2 * sum(ran_in.values()) <= self.packed["commands"]:
            return ""
        top = min(ran_in, key=lambda path: (path.count("/"), path))
        return top if all(path == top or path.startswith(f"{top}/") for path in ran_in) and top != "/" else ""


def _directory(arguments: dict[str, Any]) -> str:
    """Return the absolute directory of a call's command, without ``..``; empty if the call does not name it."""
    goes_to = _CD.match(command_of(arguments)[:2000])
    given = next(filter(None, goes_to.groups()), "") if goes_to else arguments.get("workdir") or arguments.get("cwd")
    return os.path.normpath(given) if is_path(given) and given.startswith("/") else ""
