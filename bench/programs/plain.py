"""Python and nothing else, for as long as it is let."""

from __future__ import annotations

import os
import time

from marks import Marks, arguments

given = arguments()
for _ in Marks(given, int(os.environ["RANK"])).steps(given.steps):
    time.sleep(0.01)
