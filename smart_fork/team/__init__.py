"""A person's side of a team: what leaves this machine, and what comes in."""
