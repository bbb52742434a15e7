"""A figure that a notebook shows by itself, without `%matplotlib`."""

from matplotlib.figure import Figure


class Picture(Figure):
    """A matplotlib figure with the bytes that a notebook shows."""

    def _repr_png_(self) -> bytes:
        """Show the picture in a notebook; IPython looks for this name."""
        from memlab.roofline.plots.figure import render_figure

        return render_figure(self, "png")
