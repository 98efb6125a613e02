"""A replacement for qmd with scripted answers. By default it knows collections and ranks documents by words."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cases import thorough_except_first

RETRY = "add retry with backoff to the uploader"
DONE = "The uploader in upload.py retries five times with exponential backoff"
UNAVAILABLE = {"error", "message", "next_steps", "fallback_sessions"}

#: Answers by itself, as long as nothing else was ordered, what every first question asks: ten starts of Python take longer
#: than all else in a test. A collection is a file, in which its folder stands.
_SHELL = """#!/bin/sh
known="$QMD_CONFIG_DIR/known"
read -r orders <{orders}
plain() {{ case "$*" in *[!A-Za-z0-9" "./*_-]*) false ;; *) [ "$orders" = "{{}}" ] ;; esac; }}
told() {{
    list=
    for word; do list="$list, \\"$word\\""; done
    printf '{{"argv": [%s], "cwd": "%s", "index": "%s"}}\\n' "${{list#, }}" "$PWD" "$INDEX_PATH" >>{calls}
}}
if plain "$@" "$PWD" "$INDEX_PATH"; then
    case "$1 $2 $4" in
    "collection list ")
        told "$@"
        [ -d "$known" ] || echo "No collections found."
        for one in "$known"/*; do
            [ ! -e "$one" ] || echo "${{one##*/}} (qmd://${{one##*/}}/)"
        done
        exit ;;
    "collection add --name")
        if [ ! -e "$known/$5" ]; then
            told "$@"
            mkdir -p "$known"
            printf %s "$3" >"$known/$5"
            exit
        fi ;;
    "update  " | "embed  " | "cleanup  ")
        told "$@"
        exit ;;
    esac
fi
exec {python} -IS {program} "$@"
"""
_PROGRAM = """
import json, os, re, sys, time  # and no more: it is started hundreds of times

ORDERS = {orders!r}
known = os.environ["QMD_CONFIG_DIR"] + "/known"
argv = sys.argv[1:]

def read(path):
    with open(path) as file:
        return file.read()

orders = json.loads(read(ORDERS))
with open(os.path.dirname(ORDERS) + "/qmd-calls.jsonl", "a") as calls:
    calls.write(json.dumps({{"argv": argv, "cwd": os.getcwd(), "index": os.environ["INDEX_PATH"]}}) + "\\n")
order = orders.get(argv[0]) or orders.get(" ".join(argv[:2]))
if order:
    if order.get("hangs"):
        time.sleep(1000)
    sys.stderr.write(order.get("stderr", ""))
    sys.stdout.write(order.get("prints", ""))
    sys.stdout.flush()
    if order.get("dies"):
        os.kill(os.getpid(), 9)
    sys.exit(order.get("code", 0))
collections = {{name: read(known + "/" + name) for name in sorted(os.listdir(known))}} if os.path.exists(known) else {{}}
if argv[:2] == ["collection", "list"]:
    print("Collections (%d):\\n" % len(collections) if collections else "No collections found.")
    for name in collections:
        print(name + " (qmd://" + name + "/)\\n  Pattern:  **/*.md")
elif argv[:2] == ["collection", "add"]:
    name = argv[argv.index("--name") + 1]
    if name in collections:
        sys.exit("Collection '" + name + "' already exists.")
    os.makedirs(known, exist_ok=True)
    with open(known + "/" + name, "w") as file:
        file.write(argv[2])
elif argv[0] in ("query", "vsearch", "search"):
    words = set(re.findall(r"\\w+", argv[-1].lower()))
    name = argv[argv.index("-c") + 1]
    found = []
    for file in sorted(one for one in os.listdir(collections[name]) if one.endswith(".md")):
        text = read(collections[name] + "/" + file)
        score = len(words & set(re.findall(r"\\w+", text.lower()))) / max(1, len(words))
        if score:
            body = text.split("---\\n", 2)[2].strip()
            snippet = "@@ -9,4 @@ (8 before, 3 after)\\n\\n" + body
            found.append({{"docid": "#1", "score": score, "file": "qmd://" + name + "/" + file, "snippet": snippet}})
    found.sort(key=lambda one: -one["score"])
    print(json.dumps(found[: int(argv[argv.index("-n") + 1])], indent=2))
elif argv[0] not in ("update", "embed", "cleanup"):
    sys.exit("Unknown command")
"""


@dataclass(frozen=True)
class ScriptedQmd:
    """The replacement program, with the answers it was given and the questions it was asked."""

    home: Path

    @property
    def calls(self) -> list[dict]:
        file = self.home / "qmd-calls.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def searched(self) -> list[str]:
        """Return the ways of searching that were tried, in order."""
        return [call["argv"][0] for call in self.calls if call["argv"][0] in ("query", "vsearch", "search")]

    def answers(self, command: str, prints: str = "", **more: object) -> None:
        """Let `command` print this text from now on, with this `stderr` and exit `code`; or let it hang or die."""
        file = self.home / "qmd-orders.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {command: {"prints": prints, **more}}))

    def fails(self, *commands: str) -> None:
        for command in commands:
            self.answers(command, stderr=f"boom {command}", code=1)

    def finds(self, *results: dict) -> None:
        """Let ``query`` return these results from now on."""
        self.answers("query", json.dumps(list(results)))


@pytest.fixture
def qmd(home: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedQmd:
    """Configure a scripted qmd as the engine."""
    orders = home / "qmd-orders.json"
    orders.write_text("{}")
    (home / "bin").mkdir(exist_ok=True)
    program, calls = home / "qmd.py", home / "qmd-calls.jsonl"
    program.write_text(_PROGRAM.format(orders=str(orders)))
    words = {"python": sys.executable, "orders": orders, "calls": calls, "program": program}
    command = home / "bin" / "qmd"
    command.write_text(_SHELL.format(**{name: shlex.quote(str(word)) for name, word in words.items()}))
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{home / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("SMART_FORK_ENGINE", "qmd")
    return ScriptedQmd(home)


@pytest.fixture(params=thorough_except_first(["builtin", "qmd"]))
def any_engine(request: pytest.FixtureRequest) -> str:
    """Run a test with each engine."""
    if request.param == "qmd":
        request.getfixturevalue("qmd")
    return request.param


@pytest.fixture
def knows(world, shop) -> str:
    """Index a session, and forget the questions that the program was asked for it."""
    session_id = world.claude(shop, RETRY, DONE)
    world.find(RETRY, shop)
    (world.home / "qmd-calls.jsonl").unlink()
    return session_id


def located(session_id: str, **more: object) -> dict:
    return {"file": f"qmd://claude-sessions/{session_id}.md", "score": 0.5, "snippet": RETRY} | more
