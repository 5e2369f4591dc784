"""The panels of the dashboard, one file each: every module has `panel(results) -> Panel | None`."""
