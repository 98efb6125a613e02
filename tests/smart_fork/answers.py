"""Answers of a search for tests that look at little of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from smart_fork.finding.answer import EmbeddedShares, Found, IndexState
from smart_fork.finding.hit import Hit
from smart_fork.forking.results import Forked
from smart_fork.workers.results import WorkerState

STATE = IndexState(sessions=3, chunks=3, embedded=3, covered=EmbeddedShares(1.0, 1.0), complete=True)


def a_hit(score: float = 0.62, session_id: str = "session-1", **more: Any) -> Hit:
    values = {"rank": 1, "agent_type": "claude", "title": "Add retry to the uploader", "working_directory": "/shop"}
    values |= more
    return Hit(score=score, session_id=session_id, **{"headline": values["title"]} | values)


def an_answer(*hits: Hit, sessions: int = 3, complete: bool = True, **more: Any) -> Found:
    values: dict[str, Any] = {
        "query": "add retry", "agent_type": "claude", "collections": ("claude-sessions",), "project_path": "/shop", "notice": "",
        "engine": "builtin", "search_mode": "hybrid", "fallback_used": False,
    }  # fmt: skip
    state = replace(STATE, sessions=sessions, complete=complete)
    return Found(count=len(hits), index=state, results=hits, **values | more)


def a_worker(worker_id: str, **more: Any) -> WorkerState:
    values = {"session_id": None, "agent_type": "claude", "name": worker_id, "cwd": "/shop", "place": "process"}
    return WorkerState(worker_id=worker_id, terminal_id=None, attach="", **values | more)


def a_fork(session_id: str, **more: Any) -> Forked:
    values = {
        "session_name": "claude-1", "worker_id": "claude-1", "terminal_id": None, "new_session_id": None,
        "command": f"claude --resume {session_id}", "cwd": "/x", "place": "process", "agent_type": "claude",
    }  # fmt: skip
    return Forked(resume_session_id=session_id, **values | more)
