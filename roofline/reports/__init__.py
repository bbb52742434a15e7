"""Results as text for the terminal and as HTML pages."""
