"""Figures from counters alone, without a time: ratios, boundary costs, lines, bus utilization."""
