"""Sessions that people share: the commands, the client and the server of a team. Nothing else imports it."""
