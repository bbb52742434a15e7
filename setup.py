"""The README for the package index: its links to files of the repository become absolute.

All else about the package is in pyproject.toml.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
LINK = re.compile(r"(\]\()(?!https?://|#)([^)\s]+)(\))")


def absolute_links(text: str, address: str) -> str:
    """Put the repository's address before every relative link of a Markdown text."""
    return LINK.sub(rf"\g<1>{address.rstrip('/')}/\g<2>\g<3>", text)


if __name__ == "__main__":
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    setup(
        long_description=absolute_links(readme, project["urls"]["Source"]),
        long_description_content_type="text/markdown",
    )
