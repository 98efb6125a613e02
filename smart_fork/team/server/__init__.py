"""The server of a team: sessions that were pushed, who may read them, and the PostgreSQL that keeps them."""
