"""All checks between values, one file per subject; the subjects register themselves with `reads`."""

from sim.scenario import (
    arm_checks,
    engine_checks,
    k_checks,
    prefix_checks,
    preset_report,
    question_checks,
    traffic_checks,
)
from sim.scenario.findings import CHECKS, Context, Finding

SUBJECTS = (engine_checks, arm_checks, k_checks, traffic_checks, prefix_checks, preset_report, question_checks)


def find(context: Context, broken: frozenset[str] = frozenset()) -> list[Finding]:
    """All findings of the checks that read no broken section."""
    return [finding for sections, check in CHECKS if not sections & broken for finding in check(context)]
