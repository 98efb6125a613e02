"""Finds the past sessions that answer an intent (the task that a person or an agent is about to do)."""
