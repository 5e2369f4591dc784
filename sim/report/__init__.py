"""Reports from a results folder: the HTML dashboard and the one-screen terminal summary."""

from sim.report.dashboard import write_dashboard
from sim.report.terminal import summary_text

__all__ = ["summary_text", "write_dashboard"]
