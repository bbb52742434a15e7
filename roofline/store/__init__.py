"""Runs and peaks in one SQLite file."""
