"""How far a family is followed."""

#: Forks of forks are followed this far; deeper ones are read without their oldest part.
MAX_FORK_DEPTH = 64
