"""The provider's calls by subject; `NovitaClient` combines them."""
