"""Help pages: two examples for each command, and the options of long pages in groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Pages with fewer options stay in one group.
_MANY = 9
_SEARCH, _FORK, _RUN, _OUTPUT = "Where to search", "What to fork", "How it runs", "Options"
_GROUPS: Mapping[str, str] = {
    **dict.fromkeys(("--agent", "--project", "--all-projects", "--team", "--include-automated", "--server"), _SEARCH),
    **dict.fromkeys(("--at", "--intent", "--also", "--top", "--min-score", "--budget", "--keep", "--drop"), _FORK),
    **dict.fromkeys(
        ("--merge", "--as", "--unmasked", "--fork-from", "--resume", "--continue", "--fork", "--excise"), _FORK
    ),
    **dict.fromkeys(("--worktree", "--worktree-name", "--with-changes", "--in", "--cwd", "--name", "--start"), _RUN),
    **dict.fromkeys(("--skip-permissions", "--brief"), _RUN),
    **dict.fromkeys(("--json", "--dry-run", "--explain", "--limit", "--no-snippets", "--yes", "--help"), _OUTPUT),
}
#: The session is one of the demo, so that they can be tried there.
EXAMPLES: Mapping[str, tuple[str, str]] = {
    "find": ('find "add retry to the uploader"', 'find "flaky login test" --also "test_login fails now and then" -n 3'),
    "recall": ('recall --here "what did we decide about retries"', 'recall "add retry to the uploader"'),
    "why": ("why src/upload.py:42", "why src/upload.py:42-60 --json"),
    "fix": ("fix < errors.txt", "fix --json < errors.txt"),
    "list": ("list", "list --all-projects --limit 50"),
    "show": ("show 70f1a07f", "show 70f1a07f --at 10"),
    "export": ("export 70f1a07f --html session.html", "export 70f1a07f --markdown"),
    "fork": ('fork 70f1a07f "do the same for downloads"', 'fork 70f1a07f "draw the retries" --budget 30k --dry-run'),
    "new": ('new "write the release notes"', 'new "port the tests" --worktree'),
    "resume": ("resume 70f1a07f", 'resume 70f1a07f "run the tests again" --in process'),
    "continue": ("continue", 'continue "now the tests" --in process'),
    "spawn": ('spawn --prompt "fix the race" --fork-from 70f1a07f', "spawn workers.json"),
    "branch": ('branch 70f1a07f --at 9 --title "before the rewrite"', 'branch 70f1a07f --budget 30k --intent "retry"'),
    "lineage": ("lineage 70f1a07f", "lineage 70f1a07f --json"),
    "active": ("active", "active --all-projects --include-closed"),
    "read": ("read brisk-otter", "read brisk-otter --exchanges 5"),
    "message": ('message brisk-otter "and the tests too"', "message brisk-otter 2 --answer"),
    "wait": ("wait brisk-otter", "wait brisk-otter calm-heron --any --timeout 600"),
    "close": ("close brisk-otter", "close brisk-otter --remove-worktree"),
    "stop": ("stop", "stop --all"),
    "compare": ("compare", "compare brisk-otter calm-heron --diff"),
    "worktrees": ("worktrees", "worktrees --prune"),
    "project": ("project", "project --json"),
    "project adopt": ("project adopt ~/old/shop", "project adopt ~/old/shop --remove"),
    "verdict": ('verdict 70f1a07f dropped "too slow"', "verdict 70f1a07f --remove"),
    "tag": ("tag 70f1a07f upload retry", "tag 70f1a07f retry --remove"),
    "pin": ("pin 70f1a07f", "pin 70f1a07f --remove"),
    "archive": ("archive 70f1a07f", "archive 70f1a07f --remove"),
    "forget": ("forget 70f1a07f", "forget 70f1a07f --undo"),
    "mcp": ("mcp", "mcp --tools all"),
    "serve": ("serve", "serve --port 8800"),
    "status": ("status", "status --json"),
    "open": ("open", "open --print"),
    "logs": ("logs --lines 100", "logs --follow"),
    "agents": ("agents", "agents --json"),
    "doctor": ("doctor", "doctor --deep"),
    "demo": ("demo", "demo --keep"),
    "config": ("config", "config --all"),
    "help": ("help fork", "help team push"),
    "statusline": ("statusline < status.json", "statusline --json < status.json"),
    "excise": ("excise list 70f1a07f", "excise cut 5-7 70f1a07f"),
    "excise list": ("excise list 70f1a07f", "excise list 70f1a07f --all"),
    "excise cut": ("excise cut 5-7,9 70f1a07f --dry-run", "excise cut --secrets --session 70f1a07f"),
    "excise verify": ("excise verify 70f1a07f", "excise verify 70f1a07f --erase"),
    "excise rollback": ("excise rollback --list", "excise rollback 20260704T101500.000000Z"),
    "excise discard": ("excise discard 20260704T101500.000000Z", "excise discard --session 70f1a07f"),
    "excise suggest": ("excise suggest 70f1a07f", "excise suggest 70f1a07f --json"),
    "index": ("index run", "index status"),
    "index run": ("index run", "index run --no-vectors"),
    "index status": ("index status", "index status --json"),
    "index path": ("index path", "index path --json"),
    "setup": ("setup", "setup --dry-run"),
    "setup hooks": ("setup hooks", "setup hooks --remove"),
    "service": ("service install", "service status"),
    "service install": ("service install", "service install --every 15m"),
    "service uninstall": ("service uninstall", "service uninstall --json"),
    "service stop": ("service stop", "service stop --json"),
    "service rotate": ("service rotate", "service rotate --json"),
    "service status": ("service status", "service status --json"),
    "service print": ("service print", "service print --kind systemd"),
    "team": ("team push 70f1a07f --public", "team fork 0197f2c7-1a2b --resume"),
    "team login": ("team login https://forks.example.org INVITATION", "team login https://forks.example.org"),
    "team logout": ("team logout", "team logout --server https://forks.example.org"),
    "team list": ("team list --mine", "team list --owner alice --limit 50"),
    "team show": ("team show 0197f2c7-1a2b", "team show 0197f2c7-1a2b --at 4"),
    "team log": ("team log 0197f2c7-1a2b", "team log"),
    "team diff": ("team diff 0197f2c7-1a2b", "team diff 0197f2c7-1a2b 0197f2c7-9e8d"),
    "team status": ("team status", "team status --json"),
    "team push": ("team push 70f1a07f --public", "team push --all --dry-run"),
    "team find": ('team find "add retry to the uploader"', 'team find "flaky login test" -n 3'),
    "team pull": ("team pull 0197f2c7-1a2b", "team pull 0197f2c7-1a2b --resume"),
    "team branch": ('team branch retry --at 4 --title "only the retry"', "team branch retry --local"),
    "team fork": ("team fork 0197f2c7-1a2b", "team fork 0197f2c7-1a2b --at 8 --resume"),
    "team privacy": ("team privacy 0197f2c7-1a2b --private", "team privacy 0197f2c7-1a2b --public"),
    "team delete": ("team delete 0197f2c7-1a2b", "team delete 0197f2c7-1a2b --everywhere"),
    "sync": ("sync", "sync --dry-run"),
    "sync setup": ("sync setup git@example.org:ann/sessions.git", "sync setup --key /mnt/stick/sessions.git"),
    "sync key": ("sync key", "sync key | ssh desktop smart-fork sync setup --key git@example.org:ann/sessions.git"),
    "sync add": ("sync add", "sync add --project ~/code/shop"),
    "sync remove": ("sync remove", "sync remove --project ~/code/shop"),
    "sync withdraw": ("sync withdraw 60309e1e", "sync withdraw 60309e1e --json"),
    "sync leave": ("sync leave", "sync leave --json"),
    "team sync": ("team sync", "team sync --remove"),
    "team audit": ("team audit 0197f2c7-1a2b", "team audit --since 2026-03-01 --mine"),
    "team alias": ("team alias list", "team alias use retry"),
    "team alias list": ("team alias list", "team alias list --json"),
    "team alias set": ("team alias set retry 0197f2c7-1a2b", "team alias set retry 0197f2c7-1a2b --force"),
    "team alias use": ("team alias use retry", "team alias use retry --json"),
    "team alias remove": ("team alias remove retry", "team alias remove retry --json"),
    "team excise": ("team excise cut 5-7 0197f2c7-1a2b", "team excise cut --secrets 0197f2c7-1a2b"),
    "team excise cut": ("team excise cut 5-7,9 0197f2c7-1a2b", "team excise cut --secrets 0197f2c7-1a2b"),
    "team serve": ("team serve", "team serve --listen 0.0.0.0:8770 --tls-cert chain.pem --tls-key key.pem"),
    "team jobs": ("team jobs", "team jobs --retry"),
    "team backup": ("team backup /var/backups/forks", "team backup /var/backups/forks --days 7"),
    "team restore": ("team restore forks.dump", "team restore forks.dump --data /var/lib/smart-fork"),
    "team user": ("team user add alice --project github.com/acme/shop", "team user list"),
    "team user add": ("team user add alice --project github.com/acme/shop", "team user add root --admin"),
    "team user invite": ("team user invite alice", "team user invite alice --json"),
    "team user list": ("team user list", "team user list --json"),
    "team user disable": ("team user disable alice", "team user disable alice --json"),
    "team user enable": ("team user enable alice", "team user enable alice --json"),
    "team user member": (
        "team user member alice reader --project github.com/acme/shop",
        "team user member alice none --project github.com/acme/shop",
    ),
    "team user token": ("team user token list", "team user token revoke 7"),
    "team user token list": ("team user token list", "team user token list --json"),
    "team user token revoke": ("team user token revoke 7", "team user token revoke 7 --json"),
}


def dress(command: Any, path: str) -> None:
    """Add its examples to a click command's help, and group its options."""
    if path in EXAMPLES:
        lines = (f"  smart-fork {example}" for example in EXAMPLES[path])
        command.epilog = "\n\n".join(("Examples:", *lines))
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    if path and len(options) >= _MANY:
        for one in options:
            one.rich_help_panel = next((_GROUPS[name] for name in one.opts if name in _GROUPS), "Options")
