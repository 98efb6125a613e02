"""Search programs of others that may rank the exports in the place of the own index: one file each.

What they rank is theirs. Which sessions may be shown, what is quoted and where a fork ends stays with `retrieval`.
"""
