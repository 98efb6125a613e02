"""Forks (resumable copies of past sessions): plan and start them, choose their turns, or hand them over as text."""
