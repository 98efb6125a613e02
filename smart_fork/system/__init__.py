"""Access to the machine: processes, Unix sockets, versions, limits of servers, JSON-RPC, and the context of a call."""
