"""Helpers for tests of the installed service: hostile texts, a parser of systemd's syntax, and fakes of both systems."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from smart_fork.cli.service.unit_settings import UnitSettings
from smart_fork.system.processes import Completed

HOSTILE = [
    "a&b <c> ]]> &amp;", 'it\'s "quoted"', "100% %h %%", "$HOME ${PATH} $$", "back\\slash \\n \\", " blanks ", "äöü 😀 日本",
    "a;b#c|d", "*?[x]", "=", "-v", "@:!+", "\u00a0\u2028\u3000",
]  # fmt: skip


def settings(home: Path, name: str = "plain", **more: object) -> UnitSettings:
    """Return settings with `name` in each of their texts."""
    environment = {"SMART_FORK_HOME": f"{home}/{name}", "PATH": f"/bin:/{name}", "LANG": name}
    values = {"program": f"{home}/{name}/smart-fork", "port": 8766, "environment": environment}
    return UnitSettings(**values | more)


def read_as_systemd(text: str) -> dict[str, list[str]]:
    """Parse a unit by systemd.syntax(7) and systemd.service(5): return the words or the path of each setting."""
    found: dict[str, list[str]] = {"Environment": []}
    for line in text.split("\n"):
        if "=" not in line or line.startswith("#"):
            continue
        assert not line.endswith("\\"), "goes on in the next line"
        name, _, value = line.partition("=")
        value = value.strip()
        if name == "ExecStart":
            program, *words = [specified(word) for word in words_of(value)]
            assert not set(program) & set("\"'\\$*?["), "no name of a program"
            found[name] = [program, *(re.sub(r"\$(.?)", expand, word) for word in words)]
        elif name == "Environment":
            found[name] += [specified(word) for word in words_of(value)]
        else:
            found[name] = [specified(value)]
    return found


def words_of(value: str) -> list[str]:
    """Split a line into words: quotes and backslashes, character by character."""
    words: list[str] = []
    word, quote, escaped, open_word = "", "", False, False
    for c in value:
        if escaped:
            assert c in "\\\"'", f"an escape that stands for something else: {c}"
            word, escaped = word + c, False
        elif c == "\\":
            escaped = open_word = True
        elif c == quote:
            quote = ""
        elif c in "\"'" and not quote:
            quote, open_word = c, True
        elif c in " \t\n\r" and not quote:
            words += [word] if open_word else []
            word, open_word = "", False
        else:
            word, open_word = word + c, True
    assert not quote
    assert not escaped
    return words + ([word] if open_word else [])


def specified(word: str) -> str:
    """Expand `%%` to a per cent sign. Fail for any other specifier, which systemd would replace."""
    assert not re.search(r"%(?!%)", word.replace("%%", "")), word
    return word.replace("%%", "%")


def expand(found: re.Match[str]) -> str:
    assert found[1] == "$", "a variable"
    return "$"


class FakeLaunchd:
    """A fake launchctl with loaded jobs: labels with their states."""

    def __init__(self, *loaded: str, slow: int = 0, fails: dict[str, str] | None = None) -> None:
        self.loaded = set(loaded)
        self.disabled: set[str] = set()
        self.slow = slow
        self.fails = fails or {}
        self.ran: list[tuple[str, ...]] = []
        self.on_bootstrap: Callable[[Path], None] = lambda _path: None
        self.said = "\tstate = running\n\tpid = 42\n\tlast exit code = (never exited)\n"

    def run(self, argv, *, cwd=None, env=None, timeout, input=b"", whom=""):  # noqa: A002
        program, verb, *rest = argv
        assert program == "launchctl"
        self.ran.append((verb, *rest))
        if verb in self.fails:
            return Completed(tuple(argv), 5, b"", self.fails[verb].encode())
        label = rest[0].split("/", 2)[-1]
        if verb == "print" and "/" in rest[0].removeprefix("gui/"):
            there = label in self.loaded
            return Completed(tuple(argv), 0 if there else 113, self.said.encode() if there else b"", b"")
        if verb == "bootout":
            self._boot_out(label)
        elif verb == "bootstrap":
            label = Path(rest[1]).stem
            if label in self.loaded or label in self.disabled:
                return Completed(tuple(argv), 5, b"", b"Bootstrap failed: 5: Input/output error")
            self.on_bootstrap(Path(rest[1]))
            self.loaded.add(label)
        elif verb == "enable":
            self.disabled.discard(label)
        elif verb == "disable":
            self.disabled.add(label)
        return Completed(tuple(argv), 0, b"", b"")

    def _boot_out(self, label: str) -> None:
        if not self.slow:
            self.loaded.discard(label)

    def sleep(self, seconds: float) -> None:
        """Advance the time: a slow job is gone after some looks."""
        self.slow -= 1
        if not self.slow:
            self.loaded.clear()

    @property
    def changes(self) -> list[tuple[str, ...]]:
        """Return the calls that change something."""
        return [one for one in self.ran if one[0] != "print"]


class FakeSystemd:
    """A fake systemctl and loginctl. A table maps a verb or a whole call to (code, output, error)."""

    def __init__(self, answers: dict[str, tuple[int, str, str]] | None = None) -> None:
        self.answers = {
            "loginctl": (0, "Linger=yes", ""),
            "show": (0, "LoadState=loaded\nActiveState=active\nMainPID=42\nResult=success\nExecMainStatus=0", ""),
        } | (answers or {})
        self.ran: list[tuple[str, ...]] = []
        self.env: dict[str, str] = {}

    def run(self, argv, *, cwd=None, env=None, timeout, input=b"", whom=""):  # noqa: A002
        if argv[0] == "loginctl":
            key = "loginctl"
        else:
            assert ["systemctl", "--user"] == list(argv[:2])
            key, self.env = argv[2], dict(env)
            self.ran.append(tuple(argv[2:]))
        code, output, error = self.answers.get(key, (0, "", ""))
        return Completed(tuple(argv), code, output.encode(), error.encode())

    @property
    def changes(self) -> list[tuple[str, ...]]:
        """Return the calls that change something."""
        return [one for one in self.ran if one[0] != "show"]
