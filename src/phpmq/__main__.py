"""``python -m phpmq`` is the command ``phpmq``."""

import sys

from phpmq.cli import main

sys.exit(main())
