"""Reading the agents' own session files, read-only."""
