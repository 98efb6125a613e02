"""Hostile calls of everything that the service offers: nothing may crash, be told, opened, changed or started.

A service of its own, with a home of its own. Each call is made from the schemas that the service itself gives; the
same seed makes the same calls.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from tests.attacks import violations
from tests.attacks.client import Answer, Client
from tests.attacks.home import Home, lay_out, serving
from tests.attacks.hostile_arguments import Hostile
from tests.attacks.intruder import Doors, Intruder, Tried, ended_cookies
from tests.attacks.report import Report

#: Of a hundred calls, how many are of a tool, of another method of the protocol, and of an address.
TOOLS, METHODS = 70, 10
#: Of all calls, how many try the doors: cookies, codes and tokens that are not for them or have ended.
INTRUDERS_SHARE = 0.15
#: Calls between two looks at whether the service is well.
BATCH = 250


class Attacker:
    """One client, with chance of its own."""

    def __init__(self, home: Home, report: Report, seed: str, addresses: list[tuple[str, str]]) -> None:
        self._home, self._report = home, report
        self._hostile = Hostile(home, random.Random(seed))
        self._chance = self._hostile.chance
        self._client = Client(home.port, lambda: home.token, home.project)
        listed = self._client.call("tools/list", {}).message
        assert listed is not None
        self._tools = {tool["name"]: tool["inputSchema"] for tool in listed["result"]["tools"]}
        self._addresses = addresses

    def attack(self) -> None:
        """One call."""
        lot = self._chance.randrange(100)
        make = self._tool if lot < TOOLS else self._method if lot < TOOLS + METHODS else self._address
        make()

    def _tool(self) -> None:
        name = self._chance.choice(list(self._tools))
        arguments = self._hostile.arguments(self._tools[name])
        params: Any = {"name": name, "arguments": arguments}
        if self._chance.random() < 0.15:
            params["_meta"] = self._meta()
        modern = self._chance.random() < 0.05
        answer = self._made(name, lambda: self._client.call("tools/call", params, modern=modern), str(params))
        if name == "excise_session" and '"dry_run\\": false' in answer.text:
            self._report.cut.update(one for one in self._home.own if one in answer.text)

    def _method(self) -> None:
        name = self._chance.choice([
            "resources/list", "resources/read", "resources/templates/list", "resources/subscribe", "prompts/list",
            "prompts/get", "completion/complete", "logging/setLevel", "tools/list", "ping", "tasks/get", "tools/call",
            "notifications/cancelled", "sampling/createMessage", self._hostile.text(),
        ])  # fmt: skip
        some = self._hostile.texts("uri", "name", "level", "cursor")
        some |= {"arguments": self._hostile.anything(), "ref": self._hostile.anything()}
        params = some if self._chance.random() < 0.8 else self._hostile.anything()
        shown = name if "/" in name and name.isascii() and name.replace("/", "").isalpha() else "(other methods)"
        self._made(shown, lambda: self._client.call(name, params), f"{name} {params}")

    def _address(self) -> None:
        method, path = self._chance.choice(self._addresses)
        address = self._right_address(path) if self._chance.random() < 0.5 else path
        while "{" in address:
            before, _, rest = address.partition("{")
            address = before + self._in_address() + rest.partition("}")[2]
        query = urlencode(
            {name: self._text() for name in ("q", "project", "agent", "at", "code", "nonce") if self._rarely(0.3)}
        )
        body = self._body(path)
        known = not self._rarely(0.2)
        headers = {"Authorization": f"Bearer {self._home.token if known else self._chance.choice(self._wrong())}"}
        if self._rarely(0.1):
            names = ["Cookie", "Origin", "Host", "Content-Type", "Mcp-Session-Id", "Range"]
            name = self._chance.choice(names)
            headers[name] = quote(self._text(), safe=" ;=:/")[:4000]
        others = ["PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "X"]
        verb = self._chance.choice(others) if self._rarely(0.1) else method
        address += f"?{query}" if query else ""
        sent = body.encode("utf-8", "replace") if verb == "POST" else b""
        shown = f"{verb} {address} {headers} {body[:300]}"
        self._made(path, lambda: self._client.ask(verb, address, sent, headers), shown, person=known)

    def health(self) -> Answer:
        """What the service says of itself."""
        return self._client.ask("GET", "/healthz", b"", {"Authorization": f"Bearer {self._home.token}"})

    def _body(self, path: str) -> str:
        """What an address takes, or something else."""
        form = {"prompt": self._text(), "session": self._chance.choice([*self._home.own[:6], self._text()])}
        form |= {"at": self._chance.choice(["", "1", self._text()]), "worktree": self._chance.choice(["yes", ""])}
        form["place"] = self._chance.choice(["process", "process", self._text()])
        told: dict[str, Any] = self._hostile.texts("session_id", "hook_event_name", "prompt", "cwd")
        told["tool_input"] = self._hostile.anything()
        known = {"/fork": urlencode(form)}
        fitting = known.get(path, json.dumps(told))
        others = [json.dumps(told), json.dumps(self._hostile.anything()), urlencode(form), "{", "", "\0"]
        return fitting if self._rarely(0.5) else self._chance.choice(others)

    def _rarely(self, share: float) -> bool:
        return self._chance.random() < share

    def _made(self, name: str, call: Callable[[], Answer], sent: str, *, person: bool = False) -> Answer:
        """The answer, judged; a `person` with the token in a browser may see everything."""
        try:
            answer = call()
        except (OSError, AssertionError) as error:
            answer = Answer(0, str(error))
            self._report.note(name, "errors", f"no answer: {type(error).__name__}", sent)
            return answer
        if answer.status == 404 and "Session not found" in answer.text and answer.message:
            self._client.start()
        wrong = violations.of_answer(self._home, answer, sent, person=person)
        self._report.note(name, _outcome(answer), wrong, sent)
        return answer

    def _meta(self) -> Any:
        spaces = {"workspaces": {self._chance.choice(["/", "~", "", "..", str(self._home.project)]): {}}}
        return self._chance.choice([
            {"x-codex-turn-metadata": spaces}, {"x-codex-turn-metadata": self._hostile.anything()},
            {"threadId": self._hostile.anything(), "claudecode/toolUseId": self._hostile.anything()},
            {"progressToken": self._hostile.anything()},
        ])  # fmt: skip

    def _wrong(self) -> list[str]:
        token = self._home.token
        return ["", token[:-1], token[: len(token) // 2], token.upper() + "x", "x" * 64, f"{token} {token}"]

    def _text(self) -> str:
        """A text that can be in an address or a form."""
        return self._hostile.text().encode("utf-8", "replace").decode()[:4000]

    def _in_address(self) -> str:
        return quote(self._text()[:300], safe="" if self._chance.random() < 0.5 else "/")

    def _right_address(self, path: str) -> str:
        """With what belongs there: a session of each agent in turns, as they were made."""
        which = self._chance.randrange(6)
        known = {"{agent}": ("claude", "codex")[which % 2], "{session_id}": self._home.own[which],
                 "{event}": self._chance.choice(["stop", "session-start"]), "{name}": "page.css"}  # fmt: skip
        for name, value in known.items():
            path = path.replace(name, value)
        return path


def attack(folder: Path, calls: int, seed: int, clients: int = 3) -> Report:
    """Attack a service in `folder`."""
    report = Report()
    home = lay_out(folder, random.Random(seed))
    before: dict[str, str] = {}
    ended: list[str] = []
    doors = _doors()
    with serving(home, lambda home: ended.extend(ended_cookies(home))) as process:
        before = violations.tree(home)
        addresses = [*doors.programs, *doors.pages]
        attackers = [Attacker(home, report, f"{seed}/{number}", addresses) for number in range(clients)]
        cookies = [f"smart-fork-{home.port}={one}" for one in ended]
        intruder = Intruder(home, doors, random.Random(f"{seed}/intruder"), ended=cookies)
        share = int(calls * INTRUDERS_SHARE)
        started = time.perf_counter()
        threads = [
            threading.Thread(target=_go_on, args=(one, (calls - share) // clients, report, process))
            for one in attackers
        ]
        threads.append(threading.Thread(target=_intrude, args=(intruder, share, report, process)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        report.seconds = time.perf_counter() - started
        if process.poll() is not None:
            report.violations["the service has ended"] = str(process.returncode)
    for found in (
        *violations.of_files(home, before, report.cut), *violations.of_events(home), *violations.of_calls(home),
        *violations.of_log(home),
    ):  # fmt: skip
        report.violations.setdefault(found, "")
    return report


def _go_on(attacker: Attacker, calls: int, report: Report, process: Any) -> None:
    for number in range(calls):
        if process.poll() is not None:
            return
        attacker.attack()
        if number % BATCH == BATCH - 1:
            well = attacker.health()
            if well.status != 200:
                report.violations.setdefault(f"not well: {well.text[:200]}", str(number))


def _intrude(intruder: Intruder, calls: int, report: Report, process: Any) -> None:
    """Every kind of call; in between the token is changed, and strangers flood."""
    try:
        intruder.come_in()
        _noted(report, intruder.other_family())
        for number in range(calls):
            if process.poll() is not None:
                return
            _noted(report, [intruder.attack()])
            if number in (calls // 4, calls // 2, 3 * calls // 4):
                _noted(report, intruder.rotate())
            if number in (calls // 3, 2 * calls // 3):
                _noted(report, intruder.flood())
        _noted(report, intruder.late())
    except (OSError, http.client.HTTPException, ValueError) as error:
        report.violations.setdefault(f"intruder: no answer: {type(error).__name__}", str(error))


def _noted(report: Report, tries: Iterable[Tried]) -> None:
    for tried in tries:
        report.note(f"! {tried.name}", "errors" if tried.wrong else "refused", tried.wrong, tried.sent)


def _doors() -> Doors:
    """All that the service's own application answers, each with a method that it takes."""
    from mcp.server.mcpserver import MCPServer

    from smart_fork.cli.service import app
    from smart_fork.page.routes import Page
    from smart_fork.page.sign_in import SignIn
    from smart_fork.page.worker_page import LIVE

    nothing: Any = None
    page = Page(nothing, SignIn(Path("nowhere"), "asked", str))
    _, doors = app.application(MCPServer("x"), page, nothing, nothing)
    # What has no end is listened to by tests of its own.
    return Doors(_taken(doors.programs), _taken(route for route in page.routes() if route.path != LIVE))


def _taken(routes: Any) -> list[tuple[str, str]]:
    return [
        (method, route.path) for route in routes for method in sorted(route.methods or ("POST",)) if method != "HEAD"
    ]


def _outcome(answer: Answer) -> str:
    if answer.message is not None:
        result = answer.message.get("result")
        if not isinstance(result, dict):
            return "refused"
        return "refused" if result.get("isError") or "error" in (result.get("structuredContent") or {}) else "ok"
    return "ok" if 200 <= answer.status < 400 else "refused" if answer.status < 500 else "errors"
