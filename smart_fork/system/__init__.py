"""Access to the machine: processes, login shell, installed versions, limits of servers, and the context of a call."""
