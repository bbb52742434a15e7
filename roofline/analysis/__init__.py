"""What counters say without a time: ratios, boundary cost, lines, bus utilization."""
