"""The git side of a worker: a worktree of its own, and what would be lost with it."""
