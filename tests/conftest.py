"""What every test may use."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

TESTS = Path(__file__).parent
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))

# A suite that was started in the background inherits an ignored SIGINT, and its children from it; the tests of Ctrl-C need
# the handler that a terminal gives.
signal.signal(signal.SIGINT, signal.default_int_handler)
