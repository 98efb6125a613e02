"""The one process that stays: MCP over HTTP, the model for everybody, a fresh index."""
