"""The lessons in the package: their pages, and the folders in which their commands run."""
