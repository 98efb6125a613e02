"""A small world to search: repositories, sessions of both agents as they write them, and a model that needs no weights."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from indexer.embedder import ModelUnavailableError
from smart_fork.agents.claude.log_files import slug
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from tests.smart_fork.repositories import INIT, make_repository
from tests.smart_fork.searches import find

DIMENSIONS = 32


class WordsModel:
    """An `Embedder`: texts with the same words are near each other."""

    model = "words"
    dimensions = DIMENSIONS

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += texts
        vectors = np.full((len(texts), DIMENSIONS), 1e-3, np.float32)
        for row, text in enumerate(texts):
            for word in re.findall(r"\w+", text.lower()):
                vectors[row, hashlib.blake2b(word.encode(), digest_size=1).digest()[0] % DIMENSIONS] += 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class BrokenModel(WordsModel):
    """A model that cannot be loaded."""

    @property
    def dimensions(self) -> int:
        raise ModelUnavailableError("no weights")

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += texts
        raise ModelUnavailableError("no weights")


@dataclass(frozen=True)
class Did:
    """A call of a tool and what came back; `server` is the MCP server's name, as Codex puts it beside the tool's.

    `failed` says that it went wrong, as Claude Code does; Codex has an exit status in the result.
    """

    name: str
    arguments: dict | str
    result: str = "ok"
    server: str = ""
    failed: bool = False


def _claude_records(step: str | Did, asked: dict, answered: dict) -> list[dict]:
    if isinstance(step, str):
        record = asked if step.startswith("> ") else answered
        words = step.removeprefix("> ")
        record["message"]["content"] = words if record is asked else [{"type": "text", "text": words}]
        return [record]
    call = f"toolu_{asked['uuid']}"
    name = f"mcp__{step.server}__{step.name}" if step.server else step.name
    answered["message"]["content"] = [{"type": "tool_use", "id": call, "name": name, "input": step.arguments}]
    asked["message"]["content"] = [{"type": "tool_result", "tool_use_id": call, "content": step.result}]
    if step.failed:
        asked["message"]["content"][0]["is_error"] = True
    asked.pop("promptSource"), asked.pop("origin")
    return [answered, asked]


def _codex_items(step: str | Did) -> list[dict]:
    if isinstance(step, str):
        role, kind = ("user", "input_text") if step.startswith("> ") else ("assistant", "output_text")
        return [{"type": "message", "role": role, "content": [{"type": kind, "text": step.removeprefix("> ")}]}]
    call = {"call_id": f"call_{uuid.uuid4()}"}
    made = {"type": "function_call", "name": step.name, "arguments": json.dumps(step.arguments), **call}
    if isinstance(step.arguments, str):
        made = {"type": "custom_tool_call", "name": step.name, "input": step.arguments, **call}
    made |= {"namespace": f"mcp__{step.server}"} if step.server else {}
    return [made, {"type": "function_call_output", "output": step.result, **call}]


@dataclass
class World:
    """One home. Every session is later than the one before."""

    home: Path
    model: WordsModel = field(default_factory=WordsModel)
    _minutes: int = 0

    def repository(self, name: str) -> Path:
        folder = self.home / name
        folder.mkdir(parents=True)
        make_repository(folder, INIT, ("commit", "-q", "--allow-empty", "-m", "First"))
        return folder

    def claude(self, cwd: Path | str, *said: str, session_id: str = "", **more: object) -> str:
        """A session of Claude Code: prompts and answers in turns. Returns its id."""
        session_id = session_id or str(uuid.uuid4())
        self.write_claude(session_id, cwd, self.claude_records(session_id, cwd, *said, **more))
        return session_id

    def claude_records(self, session_id: str, cwd: Path | str, *said: str, **more: object) -> list[dict]:
        records: list[dict] = []
        for number, words in enumerate(said):
            kind = "assistant" if number % 2 else "user"
            records.append({
                "type": kind, "uuid": str(uuid.uuid4()), "parentUuid": records[-1]["uuid"] if records else None,
                "sessionId": session_id, "cwd": str(cwd), "gitBranch": "main", "version": "2.1.197", "isSidechain": False,
                "timestamp": self.now(), "entrypoint": "cli", "userType": "external",
                **({"origin": {"kind": "human"}, "promptSource": "typed"} if kind == "user" else {}),
                "message": {"role": kind, "content": words if kind == "user" else [{"type": "text", "text": words}]},
                **more,
            })  # fmt: skip
        return records

    def sized_claude(self, cwd: Path | str, *said: tuple[str, str, int]) -> str:
        """A session of Claude Code of prompts, answers, and how many tokens it had in its context after each."""
        session_id = str(uuid.uuid4())
        records = self.claude_records(session_id, cwd, *(words for one in said for words in one[:2]))
        for answer, (*_, tokens) in zip(records[1::2], said, strict=True):
            answer["message"]["usage"] = {"input_tokens": tokens}
        self.write_claude(session_id, cwd, records)
        return session_id

    def fork_claude(self, parent: str, cwd: Path | str, *said: str) -> str:
        """A fork as ``--fork-session`` writes it: the same records under a new session id, then its own."""
        old = [json.loads(line) for line in self.log_of(parent).read_text().splitlines() if '"uuid"' in line]
        session_id = str(uuid.uuid4())
        own = self.claude_records(session_id, cwd, *said)
        own[0]["parentUuid"] = old[-1]["uuid"]
        self.write_claude(session_id, cwd, [record | {"sessionId": session_id} for record in old] + own)
        return session_id

    def write_claude(self, session_id: str, cwd: Path | str, records: list[dict], mode: str = "w") -> Path:
        path = self.home / ".claude/projects" / (slug(str(cwd)) or "-") / f"{session_id}.jsonl"
        return self._write(path, records, mode)

    def codex(self, cwd: Path | str, *said: str, session_id: str = "", **meta: object) -> str:
        """A session of Codex, as 0.169 writes it. Returns its id."""
        session_id = session_id or f"01{str(uuid.uuid4())[2:14]}7{str(uuid.uuid4())[15:]}"  # its ids are version 7
        items: list[tuple[str, dict]] = [("session_meta", {
            "id": session_id, "session_id": session_id, "cwd": str(cwd), "originator": "codex-tui", "source": "vscode",
            "thread_source": "user", "cli_version": "0.169.0", "history_mode": "paginated", "git": {"branch": "main"}, **meta,
        })]  # fmt: skip
        for number, words in enumerate(said):
            role, kind = ("assistant", "output_text") if number % 2 else ("user", "input_text")
            kinds = {"content_item_kinds": ["unknown" if number % 2 else "user.text"]}
            items.append(("response_item", {
                "type": "message", "role": role, "content": [{"type": kind, "text": words}],
                "internal_chat_message_metadata_passthrough": kinds,
            }))  # fmt: skip
        records = [
            {"timestamp": self.now(), "ordinal": number, "type": kind, "payload": payload}
            for number, (kind, payload) in enumerate(items)
        ]
        name = f"rollout-2026-01-01T00-00-{self._minutes % 60:02}-{session_id}.jsonl"
        self._write(self.home / ".codex/sessions/2026/01/01" / name, records, "w")
        return session_id

    def worked(self, agent: str, cwd: Path | str, *steps: str | Did, of: str = "", **more: object) -> str:
        """A session with what its agent did: prompts begin with ``> ``, other texts are the agent's. A fork of `of`."""
        session_id = str(uuid.uuid4())
        if agent == "codex":
            items = [item for step in steps for item in _codex_items(step)]
            prompts = (item["content"][0]["text"] for item in items if item.get("role") == "user")
            self.codex(cwd, *prompts, session_id=session_id, **({"forked_from_id": of} if of else {}), **more)
            path = self.log_of(session_id)
            inherited = self.log_of(of).read_text().splitlines()[1:] if of else []
            own = [
                {"timestamp": self.now(), "ordinal": number, "type": "response_item", "payload": item}
                for number, item in enumerate(items, len(inherited) + 1)
            ]
            self._write(path, [*map(json.loads, [path.read_text().splitlines()[0], *inherited]), *own], "w")
            return session_id
        records = self.claude_records(session_id, cwd, *("" for _ in range(2 * len(steps))), **more)
        old = (
            [json.loads(line) | {"sessionId": session_id} for line in self.log_of(of).read_text().splitlines()]
            if of
            else []
        )
        own = []
        for pair, step in zip(zip(records[::2], records[1::2], strict=True), steps, strict=True):
            own += _claude_records(step, *pair)
        for before, record in zip([*old[-1:], *own], own, strict=False) if old else pairwise(own):
            record["parentUuid"] = before["uuid"]
        own[0]["parentUuid"] = old[-1]["uuid"] if old else None
        self.write_claude(session_id, cwd, [*old, *own])
        return session_id

    def log_of(self, session_id: str) -> Path:
        return next(self.home.glob(f".c*/**/*{session_id}.jsonl"))

    def now(self) -> str:
        self._minutes += 1
        return f"2026-01-{1 + self._minutes // 1440:02}T{self._minutes // 60 % 24:02}:{self._minutes % 60:02}:00.000Z"

    def find(self, intent: str, project: Path | str, **more: object) -> dict:
        """The library's answer as JSON values, with this world's model."""
        where = {"everywhere": more.pop("all_projects", False), "caller": more.pop("caller_session_id", None)}
        request = FindRequest(intent, **({"agent_type": "both"} | more))
        return find(request, Engine(self.model), project, **where).as_json()

    def ids(self, intent: str, project: Path | str, **more: object) -> list[str]:
        return [hit["session_id"] for hit in self.find(intent, project, **more)["results"]]

    def _write(self, path: Path, records: list[dict], mode: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode) as file:
            file.writelines(json.dumps(record) + "\n" for record in records)
        self._minutes += 1
        os.utime(path, (1.8e9 + 60 * self._minutes,) * 2)
        return path


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def add_program(folder: Path, name: str, says: str) -> Path:
    """A program that answers everything with `says`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def world(home: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """An empty world with both agents' programs, which can fork, and nothing left behind in the background."""
    add_program(home / "bin", "claude", "  --fork-session  Fork")
    add_program(home / "bin", "codex", "Commands:\n  fork  Fork\n  exec  Run")
    monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}/usr/bin:/bin")
    monkeypatch.setenv("SMART_FORK_BACKGROUND", "0")
    return World(home)


@pytest.fixture
def shop(world: World) -> Path:
    """A repository."""
    return world.repository("shop")
