"""Reading of the agents' own session logs. Nothing in this package writes."""
