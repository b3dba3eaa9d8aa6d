"""The second worker says a word and ends with 7; the first waits for it."""

import os
import sys
import threading

if os.environ["POD_NAME"] == "worker-1":
    print("these are my last words")
    sys.exit(7)
threading.Event().wait(120)
