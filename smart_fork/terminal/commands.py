"""The commands: where each is defined, and what it is for.

To import them all takes as long as to find a session. Whoever lists them, or completes the name of one, reads this.
"""

from __future__ import annotations

from typing import NamedTuple


class CommandEntry(NamedTuple):
    """A command, or a group of commands."""

    #: A function of a module of `smart_fork.cli`, or its app.
    place: str
    #: What its own help begins with.
    purpose: str
    #: What the agents run, not people.
    hidden: bool = False


COMMANDS = {
    "find": CommandEntry(
        "search.find", "Find the past sessions that already know how, your own and those that your team shares."
    ),
    "list": CommandEntry("search.list_sessions", "Recent sessions, straight from the logs: no index needed."),
    "show": CommandEntry(
        "search.show", "The conversation as Markdown, its messages numbered as `fork --at` takes them."
    ),
    "export": CommandEntry(
        "export.export",
        "A session as one file to read or send: what was said, what was run, and edits as diffs; secrets are masked.",
    ),
    "fork": CommandEntry(
        "fork.fork",
        "Run a fork of a session; the original stays untouched. Of several sessions, each in its own git worktree.",
    ),
    "new": CommandEntry("start.new", "Start an agent in a session of its own."),
    "resume": CommandEntry(
        "start.resume", "Go on in a session, in its own directory. Where a worker is in it already, go there."
    ),
    "continue": CommandEntry(
        "start.continue_newest",
        "Go on in the newest session of the directory. Where a worker is in it already, go there.",
    ),
    "spawn": CommandEntry(
        "start.spawn", "Start 1 to 4 workers, each with a prompt; all are checked before the first is started."
    ),
    "branch": CommandEntry(
        "families.branch",
        "Copy a session under a title of its own, to go on with later; the original stays untouched.",
    ),
    "lineage": CommandEntry(
        "families.lineage",
        "Show a session's family as a tree: who was forked from whom and where, what runs, and how to get back.",
    ),
    "active": CommandEntry("workers.active", "The workers that run, newest first, and what each is doing."),
    "read": CommandEntry(
        "workers.read",
        "What a worker was asked last and what it said itself, its messages numbered as in its session.",
    ),
    "message": CommandEntry("workers.message", "Say something to a worker, in the same session."),
    "wait": CommandEntry(
        "workers.wait",
        "Wait until workers are idle, ask something or have ended; then their last words. Exits with 1 if in vain.",
    ),
    "close": CommandEntry("workers.close", "End workers. What they wrote stays."),
    "stop": CommandEntry("workers.stop", "End all workers of the current project that run. What they wrote stays."),
    "compare": CommandEntry(
        "comparison.compare",
        "What workers have made of the same prompt, side by side: answers, changes, tokens and time.",
    ),
    "worktrees": CommandEntry(
        "worktrees.worktrees",
        "The git worktrees that were made for workers: what is in each, and whether it can be removed.",
    ),
    "forget": CommandEntry(
        "forget.forget",
        "Remove all that smart-fork holds of a session, for good. The agent's own log is not touched.",
    ),
    "hook": CommandEntry(
        "hooks.hook",
        "For the agents: take one event from stdin, in silence. They run the module itself, which starts faster.",
        hidden=True,
    ),
    "mcp": CommandEntry("system.mcp", "Serve the tools over MCP on stdin and stdout; your agents start this."),
    "serve": CommandEntry(
        "serve.serve",
        "Run the service: MCP over HTTP, one model for all, a fresh index, a page to look at. Ends with Ctrl-C.",
    ),
    "status": CommandEntry(
        "overview.status",
        "One screen: what is indexed and how fresh it is, the service and its next run, the workers, what went wrong.",
    ),
    "open": CommandEntry(
        "serve.open_page",
        "Open the service's page in the browser, about the current project: a private file lets it in, once.",
    ),
    "logs": CommandEntry("serve.logs", "What the service has logged."),
    "agents": CommandEntry(
        "agent_roster.agents",
        "Which agents are installed, their versions and sessions, and what can be done with each.",
    ),
    "doctor": CommandEntry("system.doctor", "Check every part by using it, and say the next step for each failure."),
    "demo": CommandEntry("system.demo", "Show the main job on a few made-up sessions in a temporary home."),
    "statusline": CommandEntry(
        "glances.statusline",
        "One segment of a status line, for the JSON that an agent gives on stdin: whose fork it is, what workers do.",
    ),
    "welcome": CommandEntry(
        "glances.welcome",
        "For the plugin's hook: one line on how many sessions came before, or nothing.",
        hidden=True,
    ),
    "excise": CommandEntry("excise.app", "Cut turns out of a transcript that its agent can still resume."),
    "index": CommandEntry("index.app", "The search index: bring it up to date, look at it."),
    "setup": CommandEntry("setup.app", "Make smart-fork known to your agents; --remove undoes it."),
    "team": CommandEntry(
        "team.app",
        "Share sessions with a team: push, pull, branch and fork them, and find those of others.",
    ),
    "service": CommandEntry("service.app", "The service that keeps the index fresh: install it once and forget it."),
}


def named(words: list[str]) -> str | None:
    """The command that these words of a command line name."""
    name = next((one for one in words if not one.startswith("-")), None)
    return name if name in COMMANDS else None
