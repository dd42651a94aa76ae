"""Floods of hostile clients, measured by a healthy one."""
