"""A session is cut and gone on with by its real program: what went is in no file of its agent and in no request."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.e2e.agents import Machine
from tests.e2e.model_server import Call, Say
from tests.e2e.scenario import heard, unlike_any_other

STEPS = ("zebra", "walrus", "heron")
#: What a person's own history of prompts is called: it is named, and not changed.
HISTORIES = ("command-history-state.json", "logs.json")


def step(name: str) -> list[tuple[str, str]]:
    """What is said, called and answered in one step."""
    return [("user", f"step {name}"), ("call", f"echo {name}"), ("result", name), ("assistant", f"done {name}")]


def sent(machine: Machine, ask: Callable[[str], object]) -> list[tuple[str, str]]:
    """Ask, and return what the model was sent before the prompt."""
    prompt = unlike_any_other("next")
    ask(prompt)
    found: list[tuple[str, str]] = []
    for item in heard(machine, prompt).items:
        content = item.get("content")
        for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            if block["type"] == "tool_use":
                found.append(("call", block["input"]["command"]))
            elif block["type"] == "tool_result":
                text = block["content"] if isinstance(block["content"], str) else block["content"][0]["text"]
                found.append(("result", next(name for name in STEPS if name in text)))
            elif str(block.get("text")).startswith(("step", "done", "next")):
                found.append((item["role"], block["text"]))
    assert found.pop() == ("user", prompt)
    return found


def behind(machine: Machine, word: str, *folders: str) -> list[Path]:
    """The files below these folders of the home that have a word."""
    files = [path for folder in folders for path in (machine.home / folder).rglob("*") if path.is_file()]
    return [path for path in files if word.encode() in path.read_bytes() and path.name not in HISTORIES]


def a_cut_session_goes_on(
    machine: Machine, session: str, tool: str, ask: Callable[[str, bool], object], home: str
) -> None:
    """A session of three steps is cut, verified, gone on with, and restored. `ask` is told whether it begins it."""
    for name in STEPS:
        call = Call("", tool, {"command": f"echo {name}", "description": "x"}, Say(f"done {name}"))
        machine.model.when(lambda text, wanted=f"step {name}": text == wanted, call)
    for name in STEPS:
        ask(f"step {name}", name == STEPS[0])
    machine.smart_fork("index", "run")
    listed = _json(machine, "excise", "list", session)
    turns, log = listed["turns"], Path(listed["path"])
    before = log.read_bytes()
    assert behind(machine, "walrus", home)
    start = next(number for number, turn in enumerate(turns) if turn["preview"] == "step walrus")
    end = next(number for number, turn in enumerate(turns) if turn["preview"] == "done walrus")
    chosen = [turn["number"] for turn in turns[start : end + 1] if turn["number"] is not None]

    wanted = f"{min(chosen)}-{max(chosen)}"

    cut = _json(machine, "excise", "cut", wanted, session, "--yes")

    assert cut["left"] == []
    assert cut["erased"]
    assert behind(machine, "walrus", home) == []
    assert machine.smart_fork("excise", "verify", session).returncode == 0
    restored = _json(machine, "excise", "rollback", cut["snapshot"])
    assert (log.read_bytes(), restored["left"]) == (before, [])
    cut = _json(machine, "excise", "cut", wanted, session, "--yes")
    found = sent(machine, lambda prompt: ask(prompt, False))
    assert list(dict.fromkeys(found)) == [*step("zebra"), *step("heron")], found
    assert machine.model.refused == []
    assert machine.smart_fork("excise", "verify", session).returncode == 0
    machine.smart_fork("excise", "discard", *cut["snapshots"], "--yes")
    assert behind(machine, "walrus", home, ".smart-fork") == []


def _json(machine: Machine, *words: str) -> dict:
    done: dict = json.loads(machine.smart_fork(*words, "--json").stdout)
    return done
