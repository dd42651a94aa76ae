"""The audit log: which token called which mutation, with which outcome."""
