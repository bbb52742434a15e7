"""Pictures: the roofline, occupancy, peaks and traces."""
