"""Pilotlight: a GraphQL control plane for GPU instances on Novita.ai."""

__version__ = "0.2.0"
