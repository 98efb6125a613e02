"""Processes that have everything imported and wait for a command, which then starts without importing anything."""
