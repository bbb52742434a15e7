"""Sums of products of tensor cores: what they multiply, and how they round."""
