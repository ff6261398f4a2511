"""Readers that turn mail archives and tables into items."""
