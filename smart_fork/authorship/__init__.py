"""From a line of code to the session and the exchange that wrote it."""
