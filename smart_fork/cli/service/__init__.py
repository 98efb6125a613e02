"""The service: a long-running process with MCP over HTTP, one embedding model for all clients, and a fresh index."""
