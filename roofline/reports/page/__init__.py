"""Results as HTML pages: one self-contained file each, with the styles and scripts they share."""
