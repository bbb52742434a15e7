"""Rules that turn counters and times into advice, and their ranking."""
