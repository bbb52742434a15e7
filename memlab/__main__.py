"""`python -m memlab`: the command line."""

import sys

from memlab.cli.app import main

sys.exit(main())
