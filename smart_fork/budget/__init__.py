"""A fork within a budget: which exchanges of a session are worth their tokens, and what is told of the rest."""
