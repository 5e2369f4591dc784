"""Error tables: what the cost model says against what was measured."""
