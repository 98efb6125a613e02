"""Forks (resumable copies of past sessions): request, plan, budget, handover, copy, start, family."""
