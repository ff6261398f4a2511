"""Searches on items with a known truth: which model and which policy find more, and why."""
