"""A sweep: its space of points, its objective and strategy, and its rows."""
