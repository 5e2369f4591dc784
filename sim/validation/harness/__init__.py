"""How published figures were measured: one way to drive the simulated server a file."""
