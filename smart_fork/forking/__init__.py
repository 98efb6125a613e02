"""Forks (resumable copies of past sessions): modules that plan a fork, choose its turns within a token budget, write
it as a copy or as text for another agent, start it, and list a session's ancestors and forks.
"""
