"""The provider's calls by subject; `NovitaClient` is all of them together."""
