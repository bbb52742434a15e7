"""Two runs beside each other: what differs, whether it is certain, and gates on it."""
