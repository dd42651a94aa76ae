"""Novita.ai: the only place that knows what its API looks like."""
