"""Reading of the agents' own session logs. Nothing here writes."""
