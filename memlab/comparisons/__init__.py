"""The comparison of runs and the check of baselines, as functions."""
