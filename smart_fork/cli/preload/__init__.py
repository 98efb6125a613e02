"""Preloaded processes, which make commands start fast.

They have imported all modules, and each waits for one command to run.
"""
