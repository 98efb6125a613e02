"""The checks of ``smart-fork doctor``: each part of the installation is tried out."""

from __future__ import annotations

import re
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import apsw

from indexer import state_db
from indexer.default_embedder import configured_embedder
from indexer.embedder import Embedder, configured_reranker, forget_absence, has_frameworks
from indexer.environment import VARIABLES, Setting
from indexer.errors import next_step, what_failed
from indexer.json_values import Value, rare, value
from indexer.project import bare_at, project_of
from indexer.safe_files import index_db, private_dir, state_home
from indexer.store.base import Scope, Understood
from indexer.store.damage import kept
from indexer.store.schema import vectors_version
from indexer.transcripts.base import AgentAdapter
from smart_fork import config
from smart_fork.agents import AGENTS
from smart_fork.agents.agent import Agent
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.log_retention import Deletion
from smart_fork.agents.programs import Program
from smart_fork.display_text import printable
from smart_fork.errors import IndexUnavailable, SmartForkError
from smart_fork.finding.index_access import known_index, opened, unavailable
from smart_fork.finding.query import Query
from smart_fork.finding.recent import passed_over
from smart_fork.finding.request import EngineQuestion, configured_engine
from smart_fork.finding.search import embedded, search
from smart_fork.finding.team_sessions import is_known, team_room
from smart_fork.system.processes import Processes
from smart_fork.system.version import Release

_PROBE_BYTES = 1 << 14
#: The oldest tmux that forks are tested with.
_MIN_TMUX = (3, 2)
#: The number of files or versions that a check names.
_NAMED = 5


@value
class Check(Value):
    """The result of checking one part of the installation. An `optional` part, such as tmux, may be missing."""

    RUN_INDEX = "Run `smart-fork index run`."

    name: str
    ok: bool
    detail: str
    next_step: str = ""
    optional: bool = False
    seconds: float = 0.0

    @classmethod
    def run(cls, name: str, check: Callable[[], Iterator[Check]]) -> list[Check]:
        """Run `check` and return its results, with the time they took. An exception becomes a failed result."""
        started = time.perf_counter()
        step = "Reinstall smart-fork, and report this."
        try:
            done = list(check())
        except SmartForkError as error:
            done = [cls(name, ok=False, detail=error.message, next_step=error.hint or step)]
        except apsw.Error as error:
            problem = unavailable(error)
            done = [cls(name, ok=False, detail=problem.message, next_step=problem.hint)]
        except OSError as error:
            done = [cls(name, ok=False, detail=what_failed(error), next_step=next_step(error) or step)]
        except Exception as error:  # noqa: BLE001 - whatever breaks a part is what the doctor is for
            done = [cls(name, ok=False, detail=f"{type(error).__name__}: {error}", next_step=step)]
        seconds = round(time.perf_counter() - started, 2)
        return [replace(one, seconds=seconds) for one in done]


@value
class Checked(Value):
    """The results of all checks of ``smart-fork doctor``. `seed` selected the sample of a deep check."""

    ok: bool
    checks: tuple[Check, ...]
    seed: int | None = rare()

    @classmethod
    def of(cls, checks: Sequence[Check], seed: int | None = None) -> Checked:
        """Summarize `checks`: `ok` is True if all parts that are not optional work."""
        return cls(all(check.ok or check.optional for check in checks), tuple(checks), seed)


def run_checks(embedder: Embedder | None = None) -> list[Check]:
    """Run all checks of ``smart-fork doctor``. A failed check does not stop the next one."""
    embedder, processes = embedder or configured_embedder(), Processes()
    checks: dict[str, Callable[[], Iterator[Check]]] = {
        "state folder": _state,
        "state database": _facts,
        "settings": _settings,
        "project": _project,
        "logs": _logs,
        "deleted logs": _deleted_logs,
        "index": _database,
        "odd logs": _odd_logs,
        "log formats": _formats,
        "vectors": _vectors,
        "install": _install,
        "model": lambda: _model(embedder),
        "reranker": _reranker,
        "engine": _engine,
        "search": lambda: _query(embedder),
        "programs": lambda: _programs(processes),
        "tmux": lambda: _tmux(processes),
        "team": team_checks,
    }
    return [one for name, check in checks.items() for one in Check.run(name, check)]


def team_checks() -> Iterator[Check]:
    """Check that the team's server answers, and report its failed jobs. Without a login, yield nothing."""
    if is_known() and (there := team_room().server_state()) is not None:
        detail = there.problem or there.origin
        yield Check("team", ok=not there.problem, detail=detail, next_step=there.next_step, optional=True)


def _state() -> Iterator[Check]:
    home = state_home()
    step = f"Make {home} writable, or set SMART_FORK_HOME to a writable folder."
    try:
        probe = private_dir(home) / ".doctor"
        try:
            probe.write_bytes(bytes(_PROBE_BYTES))  # nothing at all can be written to a full disk
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        yield Check("state folder", ok=False, detail=what_failed(error), next_step=next_step(error) or step)
        return
    mode = stat.S_IMODE(home.stat().st_mode)
    if mode & 0o077:
        detail = f"others can look into {home} (mode {mode:o})"
        yield Check("state folder", ok=False, detail=detail, next_step=f"Run `chmod 700 {home}`.")
        return
    release = found.version if (found := Release.installed()) else "not installed"
    yield Check("state folder", ok=True, detail=f"{home}, Python {sys.version.split()[0]}, smart-fork {release}")


def _facts() -> Iterator[Check]:
    """Check the database of facts that agents' logs do not contain, such as which sessions were forgotten."""
    file, damaged = state_db.path(), state_db.damage()
    step = f"Stop smart-fork and move {file} away. Hand-overs, shared sessions and forgotten sessions are noted in it."
    detail = f"{file}: {damaged}" if damaged else str(file) if file.exists() else "nothing is kept yet"
    yield Check("state database", ok=not damaged, detail=printable(detail), next_step=step if damaged else "")


def _settings() -> Iterator[Check]:
    for fault in filter(None, (one.fault() for one in VARIABLES)):
        yield Check("settings", ok=False, detail=printable(fault), next_step="Correct or unset it.")
    for kind in config.SECTIONS.values():
        config.section(kind)
    for one in config.homes():
        if one.partition("=")[0].strip() not in AGENTS.home_variables():
            step = f"Write VARIABLE=FOLDER, with one of {', '.join(AGENTS.home_variables())}."
            yield Check("settings", ok=False, detail=printable(f"homes: unknown variable in {one!r}"), next_step=step)


def _project() -> Iterator[Check]:
    """Report the project that smart-fork finds for the current directory."""
    try:
        project = project_of(Path.cwd())
    except FileNotFoundError:
        detail, step = "the current directory was removed", "Change to an existing one."
        yield Check("project", ok=False, detail=detail, next_step=step, optional=True)
        return
    if project.doubt:
        step = "Search finds only sessions of this directory. For all sessions, use the repository's main directory."
        yield Check("project", ok=False, detail=printable(project.doubt), next_step=step, optional=True)
        return
    outside = "a bare repository: it has no files to work on" if bare_at(Path.cwd()) else "outside git"
    detail = f"the repository {project.root}" if project.git else f"{project.root}, {outside}"
    yield Check("project", ok=True, detail=printable(detail), optional=True)


def _agents_in_use() -> list[AgentAdapter]:
    """Return the agents in use; if there are none, all agents that smart-fork can start.

    An agent that smart-fork can only read, not start, counts as used if it has logs.
    """
    started = [agent for agent in READERS if AGENTS[agent.name].command]
    read = [agent for agent in READERS if not AGENTS[agent.name].command and any(agent.discover())]
    found = [agent for agent in started if agent.home().is_dir() or Program.is_found(agent.name)]
    return [*found, *read] or started


def _logs() -> Iterator[Check]:
    for agent in _agents_in_use():
        name, count = f"{agent.name} sessions", sum(1 for _ in agent.discover())
        if why := agent.unread():
            yield Check(name, ok=False, detail="none can be read", next_step=printable(why), optional=True)
        elif count:
            yield Check(name, ok=True, detail=f"{count} logs in {', '.join(map(str, agent.homes()))}", optional=True)
        else:
            step = f"Use {agent.name} once, or point {agent.variable} at its folder."
            yield Check(name, ok=False, detail=f"no logs in {agent.home()}", next_step=step, optional=True)
        for other in _other_homes(agent):
            detail, step = f"{other} is not read", f'Add it to config.toml: homes = ["{agent.variable}={other}"].'
            yield Check(name, ok=False, detail=detail, next_step=step, optional=True)


def _other_homes(agent: AgentAdapter) -> list[Path]:
    """Return folders that seem to have the agent's logs of a second account, and that smart-fork does not read."""
    usual = AGENTS[agent.name].home.default
    if AGENTS[agent.name].home.inside:
        return []
    found = [*sorted(Path.home().glob(f"{usual}-*")), Path.home() / ".config" / usual.removeprefix(".")]
    logs = [folder.relative_to(agent.home()) for folder, _ in agent.folders() if folder.is_relative_to(agent.home())]
    return [one for one in found if one not in agent.homes() and any((one / below).is_dir() for below in logs)]


def _deleted_logs() -> Iterator[Check]:
    """Report logs that an agent will delete because of their age, and whether smart-fork keeps copies."""
    for one in Deletion.expected(time.time()):
        name, how = f"{one.agent} deletes logs", "copies are kept" if one.kept else f"no copies are kept, {one.room()}"
        step = f"`smart-fork setup --keep-logs` keeps compressed copies; or change {one.setting}."
        ok = one.kept or not (one.due or one.soon)
        yield Check(name, ok=ok, detail=f"{one.in_words()}; {how}", next_step="" if one.kept else step, optional=True)


def _odd_logs() -> Iterator[Check]:
    """Report files in the agents' log folders that contain no session."""
    try:
        with opened() as store:
            found = passed_over(store)
    except IndexUnavailable:
        found = passed_over(None)
    if found:
        detail = "; ".join(f"{one.path}: {one.reason}" for one in found[:_NAMED])
        more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        step = "They contain none of your sessions: move them away, or leave them."
        yield Check("odd logs", ok=False, detail=f"{detail}{more}", next_step=step, optional=True)


def _formats() -> Iterator[Check]:
    """Report logs of agent versions newer than the tested ones, and the share of unknown records."""
    found: dict[Agent, Understood] = {}
    with known_index() as store:
        understood = store.understood() if store else {}
        found |= {AGENTS[name]: logs for name, logs in understood.items() if name in AGENTS}
    step = "Update smart-fork. Until then, it skips the records that it does not know."
    for agent, logs in found.items():
        newer = [version for version in logs.versions if agent.compared(version) == "newer"]
        wrote = f"version {', '.join(newer[:_NAMED])} is newer than {agent.seen}, which was tried" if newer else ""
        share = f"{logs.unknown:,} of {logs.records:,} records ({logs.unknown / max(1, logs.records):.1%}) are unknown"
        if detail := "; ".join(filter(None, (wrote, share if logs.unknown else ""))):
            yield Check(f"{agent.name} log format", ok=False, detail=printable(detail), next_step=step, optional=True)
    if known := sum(logs.records - logs.unknown for logs in found.values()):
        yield Check("log formats", ok=True, detail=f"{known:,} records have a known type", optional=True)


def _database() -> Iterator[Check]:
    before = kept(index_db())
    with opened() as store:
        if aside := [path for path in kept(index_db()) if path not in before]:
            yield Check(
                "index", ok=False, detail=f"it was damaged, and is kept as {aside[-1]}", next_step=Check.RUN_INDEX
            )
            return
        problem = store.db.execute("PRAGMA quick_check(1)").get
        if problem != "ok":
            raise apsw.CorruptError(str(problem))  # it is set aside
        counts = store.counts()
    passages = f"{counts.sessions} sessions, {counts.chunks} passages, {counts.embedded} embedded"
    step = Check.RUN_INDEX if not counts.sessions or counts.embedded < counts.chunks else ""
    yield Check(
        "index", ok=True, detail=f"{passages}; SQLite {apsw.sqlite_lib_version()}; {index_db()}", next_step=step
    )


def _vectors() -> Iterator[Check]:
    """Check that SQLite can load sqlite-vec, which stores the index's vectors."""
    yield Check("vectors", ok=True, detail=f"sqlite-vec {vectors_version()}")


def _install() -> Iterator[Check]:
    """Report whether the installation is full or light, which decides the embedding models."""
    detail = "full: sentence-transformers embeds many passages, and other models are possible"
    if not has_frameworks():
        detail = "light: onnxruntime embeds everything; other models need sentence-transformers"
    yield Check("install", ok=True, detail=detail, optional=True)


def _model(embedder: Embedder) -> Iterator[Check]:
    texts = ["retry a failed upload", "try the upload again when it fails", "a cake recipe"]
    forget_absence()  # it is tried now, whatever was seen before
    try:
        one, near, far = embedder.embed(texts)
    except Exception as error:  # noqa: BLE001 - any model may be configured
        step = "Unset SMART_FORK_MODEL, or reinstall smart-fork; search uses words only until then."
        yield Check("model", ok=False, detail=str(error), next_step=step)
        return
    alike, unlike = float(one @ near), float(one @ far)
    ok = alike > unlike
    yield Check(
        "model",
        ok=ok,
        detail=f"{embedder.model}, {embedder.dimensions} dimensions, alike {alike:.2f}, unlike {unlike:.2f}",
        next_step="" if ok else "This model cannot tell meanings apart. Set SMART_FORK_MODEL to another one.",
    )


def _reranker() -> Iterator[Check]:
    if (rerank := configured_reranker()) is None:
        return
    try:
        alike, unlike = rerank("retry a failed upload", ["try the upload again when it fails", "a cake recipe"])
    except Exception as error:  # noqa: BLE001 - any model may be configured
        step = "Unset SMART_FORK_RERANKER, or set another cross-encoder. Until then results are not reranked."
        yield Check("reranker", ok=False, detail=str(error), next_step=step, optional=True)
        return
    ok = alike > unlike
    step = "" if ok else "It ranks wrong answers first. Set SMART_FORK_RERANKER to another cross-encoder."
    detail = f"{Setting.RERANKER.text()}, alike {alike:.2f}, unlike {unlike:.2f}"
    yield Check("reranker", ok=ok, detail=detail, next_step=step, optional=True)


def _engine() -> Iterator[Check]:
    if (engine := configured_engine()) is None:
        return
    with opened() as store:
        engine.refresh(store.counts().updated_at)
    ranking = engine.ask(EngineQuestion("retry a failed upload", ("retry",), READERS.names))
    found = f"{engine.name}, {ranking.way or 'nothing'} answers" + (f"; {ranking.error}" if ranking.error else "")
    step = f"{Check.RUN_INDEX} It says what {engine.name} needs." if ranking.error else ""
    yield Check("engine", ok=ranking.way is not None, detail=printable(found), next_step=step)


def _query(embedder: Embedder) -> Iterator[Check]:
    """Check the search by searching for a stored session's own title."""
    newest = "SELECT part, title FROM sessions WHERE title <> '' ORDER BY last_activity DESC LIMIT 1"
    try:
        with opened() as store:
            row = store.db.execute(newest).fetchone()
            if row is None:
                yield Check("search", ok=True, detail="nothing is indexed yet", next_step=Check.RUN_INDEX)
                return
            query = Query(str(row[1]), Scope((int(str(row[0])),)), 5, everywhere=True)
            found = search(store, query, partial(embedded, embedder))
    except IndexUnavailable:
        yield Check("search", ok=False, detail="there is no index to search", next_step="Repair the index first.")
        return
    ok, count = bool(found.hits) and not found.error, len(found.hits)
    detail = f"{found.mode}, {count} result{'s' * (count != 1)}" + (f"; {found.error}" if found.error else "")
    yield Check("search", ok=ok, detail=detail, next_step="" if ok else f"{Check.RUN_INDEX} Then check again.")


def _programs(processes: Processes) -> Iterator[Check]:
    for agent in _agents_in_use():
        if not (known := AGENTS[agent.name]).command:
            continue
        program = Program.of(agent.name, processes)
        able = "forks" + (", also without a terminal" if program.can_fork_headless else "")
        said, tried = program.version(processes), " to ".join(filter(None, (known.seen, known.newest)))
        stands = f"{way} than " if (way := known.compared(said, 3)) else ""
        version = f"version {said or 'unknown'} ({stands}{tried}, seen to work)"
        detail = program.problem or f"{program.path} {able}, {version}"
        yield Check(f"{agent.name} program", ok=program.can_fork, detail=detail, next_step=program.hint, optional=True)


def _tmux(processes: Processes) -> Iterator[Check]:
    step = "Install tmux to have forks in windows; without it they run as processes."
    try:
        answer = processes.run(["tmux", "-V"], timeout=10)
    except SmartForkError as error:
        yield Check("tmux", ok=False, detail=error.message, next_step=step, optional=True)
        return
    ok = answer.ok
    # What is built from its main branch names no version.
    if found := re.match(r"tmux (?:next-)?(\d+)\.(\d+)", answer.text):
        ok = ok and tuple(map(int, found.groups())) >= _MIN_TMUX
        step = "Update tmux: forks are tested with 3.2 and newer. `--in process` needs none."
    yield Check("tmux", ok=ok, detail=answer.text or answer.complaint, next_step="" if ok else step, optional=True)
