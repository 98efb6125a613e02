"""The real service, with the demo's sessions in a home of their own and an index of them made by the real light model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from smart_fork.cli.demo import DemoHome, write_demo_home
from tests.demo_logs import session_id, write_more
from tests.demo_logs.script import Scripted
from tests.smart_fork.fake_agents import AGENT
from tests.support import forkserver

SECONDS = 120.0
#: Reads and embeds everything, without waiting for the frameworks that are faster from hundreds of texts on.
INDEX = """
from indexer.default_embedder import LightEmbedder
from tests.smart_fork.searches import find
from smart_fork.finding.request import FindRequest
from smart_fork.finding.index_refresh import Engine
answer = find(FindRequest("anything", agent_type="both"), Engine(LightEmbedder(), 60, 60))
assert answer.index.complete, answer
"""
#: What an agent does that is asked to release something: it asks first, and says which answer it was given.
ASKS = r"""
if "release" in words[-1] and sys.stdout.isatty():
    import termios, tty
    before = termios.tcgetattr(0)
    tty.setcbreak(0)
    options = ["\u276f 1. Yes", "  2. Yes, and do not ask again for: twine upload", "  3. No, and say what to do instead (esc)"]
    print("\n".join(["", " Run twine upload dist/*?", *(f" {one}" for one in options), "", " Esc to cancel"]), flush=True)
    told = os.read(0, 1).decode()
    termios.tcsetattr(0, termios.TCSADRAIN, before)
    print("\x1b[2J\x1b[H", end="", flush=True)
    done = {"role": "assistant", "content": [{"type": "text", "text": f"Uploaded 1.4.0; the answer was {told}."}], "stop_reason": "end_turn"}
    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    with path.open("a") as log:
        for kind, one, above, said in (("user", first, None, asked["message"]), ("assistant", second, first, done)):
            at = datetime.now(UTC).isoformat()
            log.write(json.dumps({"type": kind, "uuid": one, "parentUuid": above, "message": said, "timestamp": at, "sessionId": session, "cwd": os.getcwd()}) + "\n")
"""


@dataclass
class DemoService:
    """The service of a home, which runs at `url` once it was started."""

    demo: DemoHome
    env: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    url: str = ""

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = [sys.executable, "-m", "smart_fork", "serve"]
        self.process = forkserver.Popen(command, cwd=self.demo.home, env=self.env, stdin=subprocess.DEVNULL)
        address = json.loads(_text_of(self.state / "service.json", self.process))
        self.url = f"http://{address['host']}:{address['port']}"

    def stop(self) -> int | None:
        """End it as the system does; what it ended with."""
        if self.process is None:
            return None
        self.process.terminate()
        return self.process.wait(SECONDS)

    @property
    def state(self) -> Path:
        return self.demo.home / ".smart-fork"

    def smart_fork(self, *words: str) -> str:
        return _python(self.env, "-m", "smart_fork", *words)

    def way_in(self) -> str:
        """The address of a file that lets a browser in once."""
        return self.smart_fork("open", "--print").strip()

    def session(self, name: str) -> str:
        """The id of a session of Claude Code, by what its script calls it."""
        return session_id(name)

    def log_of(self, session_id: str) -> str:
        """The log of a session of Claude Code."""
        return next((self.demo.home / ".claude/projects").rglob(f"{session_id}.jsonl")).read_text()

    def forks(self) -> list[list[str]]:
        """What the agents were started with, one for each fork."""
        return [json.loads(path.read_text())[1] for path in self.ran()]

    def ran(self) -> list[Path]:
        """Where each of them has noted what it was started with, by the worker's id."""
        return sorted((self.demo.home / "ran").glob("[!.]*"))


@contextmanager
def demo_service(home: Path, more: Sequence[Scripted] = (), **variables: str) -> Iterator[DemoService]:
    """A service for `home`, with the demo's sessions and `more`; ended afterwards, with all that it started."""
    demo = write_demo_home(home)
    write_more(demo, more)
    programs = demo.home / "bin"
    programs.mkdir()
    for name in ("claude", "codex"):
        (programs / name).write_text(AGENT.replace("if sys.stdout.isatty():\n", f"{ASKS}if sys.stdout.isatty():\n", 1))
        (programs / name).chmod(0o755)
    env = forkserver.like({
        "HOME": str(demo.home),
        "SMART_FORK_PRELOAD": "off",
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "HF_HUB_OFFLINE": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "SMART_FORK_INDEXING": "true",
        "SMART_FORK_TMUX_SOCKET": f"demo-{os.getpid()}",
        **variables,
    })  # fmt: skip
    _python(env, "-c", INDEX)
    service = DemoService(demo, env)
    try:
        service.start()
        yield service
    finally:
        _python(env, "-m", "smart_fork", "stop", "--all")
        service.stop()


def _python(env: dict[str, str], *words: str) -> str:
    command = [sys.executable, *words]
    done = forkserver.run(
        command, env=env, cwd=env["HOME"], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _text_of(path: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists():
            return path.read_text()
        time.sleep(0.05)
    raise AssertionError("The service does not listen")
