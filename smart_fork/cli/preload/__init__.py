"""Preloaded processes: they have imported everything, and wait for a command to run without further imports."""
