"""What a result means: ceilings, intensities, bounds, advice, stored runs and pictures."""
