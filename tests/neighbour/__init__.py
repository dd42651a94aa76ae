"""One token at all of its limits, and another project that must not notice."""
