"""Whether output may be coloured: only on a terminal, and not when NO_COLOR is set (https://no-color.org)."""

import os
import sys
from typing import TextIO


def colour_wanted(stream: TextIO | None = None) -> bool:
    """Whether a stream, stdout by default, shows colours and the user wants them."""
    return (stream or sys.stdout).isatty() and not os.environ.get("NO_COLOR")
