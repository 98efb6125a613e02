"""Git operations for sessions and workers: worktrees, uncommitted changes, and a repository's history."""
