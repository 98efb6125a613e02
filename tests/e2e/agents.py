"""A machine of its own for the real Claude Code and Codex: an empty home, a repository, and a model on loopback.

A `Machine` runs the programs as a script does (`claude`, `codex`) and as a person does (`interactive`: in a terminal of a
private tmux server). Everything waits for something that can be observed, a log or a request; nothing waits for a time.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import psutil

from smart_fork.system.processes import Processes
from tests.e2e.failure_report import situation
from tests.e2e.logs import Json, Log
from tests.e2e.model_server import ModelServer, Protocol
from tests.e2e.programs import CHECKOUT, CLAUDE_VERSION, CODEX_VERSION
from tests.e2e.terminals import SECONDS, Terminal, alive, wait_until
from tests.support import forkserver
from tests.support.processes import command_line, is_running, kill_if_running

#: Our own command, and the name under which the agents know our MCP server.
SMART_FORK = (sys.executable, "-m", "smart_fork")
SERVER = "smart-fork"
#: For Claude Code and OpenCode, which run on Bun: a second compiler and threads for garbage pay only where a run is long.
SHORT_RUNS = {"BUN_JSC_useDFGJIT": "0", "BUN_JSC_useConcurrentGC": "0", "BUN_JSC_numberOfGCMarkers": "1"}

#: Ids in the agents' logs, times, and where Codex names the commit.
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|msg_\d{24}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_COMMIT = re.compile(r'"commit_hash":"[0-9a-f]{40}"')


def _id_like(one: str) -> str:
    new = uuid.uuid4()
    if one.startswith("msg_"):
        return f"msg_{new.int % 10**24:024}"
    if one[14] == "7":  # it begins with its time
        new = uuid.UUID(f"{time.time_ns() // 10**6:012x}7{new.hex[13:]}")
    return str(new)


@dataclass
class Machine:
    """A home, a repository in it, the agents' programs and the model that they talk to."""

    root: Path
    programs: Path
    model: ModelServer
    socket: str = field(default_factory=lambda: f"smart-fork-test-{uuid.uuid4().hex[:12]}")

    KEY = "sk-ant-api03-loopback-0000000000"

    def __post_init__(self) -> None:
        self.home = self.root / "home"
        self.home.mkdir(parents=True)
        self.env = {
            "HOME": str(self.home),
            "PATH": f"{self.programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "SHELL": "/bin/sh",
            "GIT_CONFIG_NOSYSTEM": "1",
            "ANTHROPIC_BASE_URL": self.model.url,
            "ANTHROPIC_API_KEY": self.KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "ENABLE_TOOL_SEARCH": "false",
            "MOCK_KEY": "loopback",
            "SMART_FORK_PRELOAD": "off",  # it takes three seconds to begin, and more than most machines get back
            **SHORT_RUNS,
        }
        (self.home / ".gitconfig").write_text("[user]\n\tname = Test\n\temail = test@example.com\n")
        (self.home / ".claude").mkdir()
        (self.home / ".codex").mkdir()
        self._link_server_of_codex()
        self.trusted: list[Path] = []
        self.has_plugins = False
        self.mcp_env: dict[str, str] | None = None
        self.service: tuple[str, str] | None = None
        self.project = self.repository("shop")

    def repository(self, name: str) -> Path:
        """A git repository with one commit, which both agents trust."""
        folder = self.home / name
        folder.mkdir()
        (folder / "README.md").write_text(f"# {name}\n")
        for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "First"]):
            subprocess.run(["git", *command], cwd=folder, env=self.env, check=True, capture_output=True)
        self.trust(folder)
        return folder

    def trust(self, folder: Path) -> None:
        """Have neither agent ask about `folder`."""
        self.trusted.append(folder)
        self._write_settings()

    def allow_plugins(self) -> None:
        """Have Codex look for plugins, as it does where nobody has said anything."""
        self.has_plugins = True
        self._write_settings()

    def _link_server_of_codex(self) -> None:
        """Put the server for Codex's terminals where Codex would copy it, 404 MB, at the first start in a new home."""
        for package in self.programs.parent.glob("node_modules/@openai/codex-*/vendor/*"):
            folder = self.home / ".codex/packages/app-server-daemon"
            version = json.loads((package.parents[2] / "codex/package.json").read_text())["version"]
            release = folder / "releases" / f"{version}-{package.name}"
            shutil.copytree(package, release, copy_function=os.link)
            (release / "codex").symlink_to("bin/codex")
            (folder / "current").symlink_to(release)

    def know_smart_fork(self) -> None:
        """Have all programs run this checkout, as the light install: importing PyTorch takes longer than most tests."""
        paths = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "tests/e2e/light")])
        self.env |= {"SMART_FORK_TMUX_SOCKET": self.socket, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"}
        forkserver.know(self.env)

    def add_smart_fork(self) -> None:
        """Give both agents our MCP server, as ``claude mcp add`` and ``codex mcp add`` do, with all its tools.

        Claude Code gives a server its own environment. Codex gives it next to nothing, so there it stands in the settings.
        """
        self.know_smart_fork()
        self.env["SMART_FORK_TOOLS"] = "all"
        self.mcp_env = {
            name: value for name, value in self.env.items() if name not in ("HOME", "TERM", "LANG", "SHELL")
        }
        self._write_settings()

    def add_service(self, url: str, token: str) -> None:
        """Give both agents the running service instead, over HTTP."""
        self.service = (url, token)
        self._write_settings()

    def _write_settings(self) -> None:
        path = self.home / ".claude.json"
        answers: Json = json.loads(path.read_text()) if path.exists() else {}  # Claude Code keeps notes in it
        answers |= {"hasCompletedOnboarding": True, "theme": "dark"}
        answers |= {"customApiKeyResponses": {"approved": [self.KEY[-20:]], "rejected": []}}
        for folder in self.trusted:
            answers.setdefault("projects", {}).setdefault(str(folder), {})["hasTrustDialogAccepted"] = True
        if self.mcp_env is not None:
            answers["mcpServers"] = {
                SERVER: {"type": "stdio", "command": SMART_FORK[0], "args": [*SMART_FORK[1:], "mcp"]}
            }
        if self.service is not None:
            url, token = self.service
            headers = {"Authorization": f"Bearer {token}"}
            answers["mcpServers"] = {SERVER: {"type": "http", "url": url, "headers": headers}}
        path.write_text(json.dumps(answers))
        lines = ['model = "gpt-5"', 'model_provider = "mock"', 'approval_policy = "never"']
        lines += ['sandbox_mode = "danger-full-access"', "check_for_update_on_startup = false"]
        # A third of what a run takes: plugins are asked for at GitHub, and a shell is run to see its variables.
        lines += [f"features.plugins = {json.dumps(self.has_plugins)}", "features.shell_snapshot = false"]
        lines += ["[model_providers.mock]", 'name = "mock"', f'base_url = "{self.model.url}/v1"']
        lines += ['wire_api = "responses"', 'env_key = "MOCK_KEY"']
        lines += [line for folder in self.trusted for line in (f'[projects."{folder}"]', 'trust_level = "trusted"')]
        if self.mcp_env is not None:
            lines += [f"[mcp_servers.{SERVER}]", f"command = {json.dumps(SMART_FORK[0])}"]
            lines += [f"args = {json.dumps([*SMART_FORK[1:], 'mcp'])}", "required = true", "startup_timeout_sec = 60"]
            lines += [f"[mcp_servers.{SERVER}.env]"]
            lines += [f"{name} = {json.dumps(value)}" for name, value in self.mcp_env.items()]
        if self.service is not None:
            url, token = self.service
            lines += [f"[mcp_servers.{SERVER}]", f"url = {json.dumps(url)}", "required = true"]
            lines += [f"http_headers = {{ Authorization = {json.dumps(f'Bearer {token}')} }}"]
        (self.home / ".codex" / "config.toml").write_text("\n".join(lines) + "\n")

    def set_up(self, agent: str, *without: str) -> None:
        """Make smart-fork known to an agent as a person does, with what is not left out of it."""
        self.know_smart_fork()
        self.smart_fork("setup", "--agent", agent, "--yes", "--no-service", "--no-index", "--no-skill", *without)

    # As a script does

    def run(
        self,
        *command: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        start: type[subprocess.Popen] = subprocess.Popen,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, without any input."""
        argv = [str(word) for word in command]
        process = start(
            argv,
            cwd=cwd or self.project,
            env=self.env | dict(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        with process:
            try:
                stdout, stderr = process.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                stdout, stderr = process.communicate()
                raise AssertionError(f"{argv} did not end: {stdout[-2000:]} {stderr[-2000:]}") from None
        if check:
            assert process.returncode == 0, f"{argv} ended with {process.returncode}: {stdout[-2000:]} {stderr[-2000:]}"
        return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)

    def claude(self, *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.run(self.programs / "claude", *args, **options)

    def codex(self, *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.run(self.programs / "codex", *args, **options)

    def smart_fork(self, *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command of ours, in a fork of a process that has imported everything."""
        return self.python(*SMART_FORK[1:], *args, **options)

    def python(self, *words: str, env: Mapping[str, str] | None = None, **options: Any) -> Any:
        """The same for any program of this checkout."""
        env = {"SMART_FORK_PRELOAD": "off"} | dict(env or {})
        return self.run(sys.executable, *words, env=env, start=forkserver.Popen, **options)

    # As a person does

    def tmux(self, *args: str, check: bool = True) -> str:
        """A command of the private tmux server."""
        command = ["tmux", "-L", self.socket, "-f", os.devnull, *args]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=SECONDS, check=False)
        if check:
            assert done.returncode == 0, f"tmux {args}: {done.stderr}"
        return done.stdout

    def interactive(self, program: str | Path, *args: str, cwd: Path | None = None) -> Terminal:
        """Start a program in a terminal of its own."""
        shape = ["-x", "160", "-y", "50", "-c", str(cwd or self.project), "-P", "-F", "#{window_id} #{pane_pid}"]
        # A server that ends with its last window could be ending just now.
        stay = ["start-server", ";", "set-option", "-s", "exit-empty", "off", ";"]
        # `env` makes it two words at least: tmux gives one single word to a shell.
        window, pid = self.tmux(*stay, "new-session", "-d", *shape, "--", "env", str(program), *args).split()
        return Terminal(self.tmux, window, int(pid))

    def terminal(self, pane: str) -> Terminal:
        """One that somebody else has started something in."""
        return Terminal(self.tmux, pane, int(self.tmux("display-message", "-p", "-t", pane, "#{pane_pid}")))

    def agent_interactive(self, agent: Protocol, *args: str, cwd: Path | None = None) -> Terminal:
        return self.interactive(self.programs / agent, *args, cwd=cwd)

    def session_of_a_person(self, agent: Protocol, *exchanges: tuple[str, str], cwd: Path | None = None) -> Log:
        """A finished session as a person makes it: each prompt typed into a terminal and answered, then left."""
        for prompt, answer in exchanges:
            self.model.when(lambda text, wanted=prompt: text == wanted, answer)
        before = set(self.logs(agent))

        def written(answer: str) -> Callable[[], Log | None]:
            return lambda: next((log for log in self.logs(agent) if log not in before and log.answers(answer)), None)

        terminal = self.agent_interactive(agent, "--", exchanges[0][0], cwd=cwd)
        log = wait_until(written(exchanges[0][1]), f"{agent} to write down the answer")
        for prompt, answer in exchanges[1:]:
            terminal.type(prompt)
            wait_until(written(answer), f"{agent} to write down the next answer")
        terminal.leave("/exit" if agent == "claude" else "/quit")
        return log

    def session_of_before(self, agent: Protocol, *exchanges: tuple[str, str], cwd: Path | None = None) -> Log:
        """The same where nobody looks at how it is made: a copy of the first that this version wrote on any machine.

        It has ids, times, a directory and a commit of its own.
        """
        where = cwd or self.project
        version = {"claude": CLAUDE_VERSION, "codex": CODEX_VERSION}[agent]
        name = sha256(repr(exchanges).encode()).hexdigest()[:16]
        kept = self.root.parents[1] / "sessions" / f"{agent}-{version}-{name}.json"
        if not kept.exists():
            log = self.session_of_a_person(agent, *exchanges, cwd=where)
            kept.parent.mkdir(exist_ok=True)
            (written := kept.with_name(f"{kept.name}.{os.getpid()}")).write_text(
                json.dumps([str(where), log.path.read_text()])
            )
            written.replace(kept)
            return log
        there, text = json.loads(kept.read_text())
        ids: dict[str, str] = {}
        later = datetime.now(UTC) - max(map(datetime.fromisoformat, _TIME.findall(text)))
        commit = self.run("git", "rev-parse", "HEAD", cwd=where).stdout.strip()
        text = _ID.sub(lambda one: ids.setdefault(one[0], _id_like(one[0])), text.replace(there, str(where)))
        text = _TIME.sub(lambda one: f"{datetime.fromisoformat(one[0]) + later:%FT%T.%f}"[:-3] + "Z", text)
        text = _COMMIT.sub(f'"commit_hash":"{commit}"', text)
        first = json.loads(text.splitlines()[0])
        if agent == "claude":
            path = self.folder_of_claude(where) / f"{first['sessionId']}.jsonl"
        else:
            began = datetime.now(UTC)
            folder = self.home / ".codex/sessions" / f"{began:%Y/%m/%d}"
            path = folder / f"rollout-{began:%Y-%m-%dT%H-%M-%S}-{first['payload']['id']}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
        return Log(path)

    # What they wrote

    def logs(self, agent: Protocol) -> list[Log]:
        """All logs of an agent, oldest first."""
        below, pattern = {
            "claude": (".claude/projects", "*/*.jsonl"),
            "codex": (".codex/sessions", "*/*/*/*.jsonl"),
            "qwen": (".qwen/projects", "*/chats/*.jsonl"),
        }[agent]
        return [
            Log(path) for path in sorted((self.home / below).glob(pattern), key=lambda path: path.stat().st_mtime_ns)
        ]

    def find_log(self, agent: Protocol, answer: str) -> Log | None:
        """The newest log in which the model says `answer`."""
        return next((log for log in reversed(self.logs(agent)) if log.answers(answer)), None)

    def folder_of_claude(self, directory: Path) -> Path:
        """Where Claude Code keeps the sessions of a directory."""
        return self.home / ".claude" / "projects" / re.sub(r"[^A-Za-z0-9]", "-", str(directory))

    def log(self, agent: Protocol, session_id: str) -> Log:
        """The log of that session, as soon as it is there."""

        def find() -> Log | None:
            return next((log for log in self.logs(agent) if log.session_id == session_id and log.records), None)

        return wait_until(find, f"the log of {agent} session {session_id}")

    # How it ends

    def processes(self) -> list[psutil.Process]:
        """What runs from this home: agents, what they started, and whatever they left running."""
        return _processes(self.root)

    def servers(self) -> list[psutil.Process]:
        """Our MCP servers."""
        return [process for process in self.processes() if command_line(process)[1:] == [*SMART_FORK[1:], "mcp"]]

    def close_terminals(self) -> None:
        """End all that runs in the terminals."""
        panes = self.tmux("list-panes", "-a", "-F", "#{pane_pid}", check=False).split()
        socket = self.tmux("display-message", "-p", "#{socket_path}", check=False).strip()
        self.tmux("kill-server", check=False)
        wait_until(lambda: not any(alive(int(pid)) for pid in panes), "the terminals to close")
        if socket:
            Path(socket).unlink(missing_ok=True)

    def shut_down(self) -> None:
        """End what runs in the terminals, and whatever else was left running from this home."""
        self.close_terminals()
        _end(self.root)


def _processes(root: Path) -> list[psutil.Process]:
    """Those with a home, a working directory or an argument below `root`."""
    found = []
    for process in Processes.each():
        try:
            words = [process.environ().get("HOME", ""), process.cwd(), *process.cmdline()]
            if is_running(process) and any(str(root) in word for word in words):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _end(root: Path) -> None:
    for process in _processes(root):
        kill_if_running(process)
    wait_until(lambda: not _processes(root), "the last process of a machine to end")


def _end_what_was_abandoned(folder: Path) -> None:
    """Runs that were killed could not end what ran on their machines. A machine is named after its run's process."""
    for root in folder.glob("*-*"):
        if not psutil.pid_exists(int(root.name.partition("-")[0])):
            _end(root)
            shutil.rmtree(root, ignore_errors=True)


@contextmanager
def machine_in(cache: Path, programs: Path) -> Iterator[Machine]:
    """A machine below the cache (Codex refuses helper programs under /tmp), gone with everything on it afterwards."""
    _end_what_was_abandoned(cache / "run")
    root = cache / "run" / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    with ModelServer() as model:
        machine = Machine(root, programs, model)
        try:
            yield machine
        except BaseException as error:
            error.add_note(situation(machine))
            raise
        finally:
            machine.shut_down()
            shutil.rmtree(root, ignore_errors=True)
