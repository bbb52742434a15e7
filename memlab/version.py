"""The version of the installed memlab."""

from importlib.metadata import PackageNotFoundError, version


def memlab_version() -> str:
    """Return memlab's version, or `unknown` where it runs without having been installed."""
    try:
        return version("memlab")
    except PackageNotFoundError:
        return "unknown"
