"""What Claude Code and Codex are like: their programs, commands, screens, and what their logs tell of a worker."""
