"""The limit for families."""

#: Forks of forks are followed this far. Deeper ones are read without their oldest part.
MAX_FORK_DEPTH = 64
