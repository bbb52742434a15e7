"""Results as JSON, CSV and data frames; those of runs and peaks can be read again."""
