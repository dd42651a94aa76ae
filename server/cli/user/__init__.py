"""The commands for users: they talk to a server over GraphQL and load nothing of it."""
