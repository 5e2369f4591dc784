"""Arrival processes; one file per kind. Besides `server/` the only folder that knows the simulated clock."""
