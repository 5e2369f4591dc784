"""Where simulated time passes: the engine loop, its prices and its record."""
