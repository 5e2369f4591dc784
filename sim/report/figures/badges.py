"""What can be relied on, in badges: the cost profiles and the verification rules of an experiment."""

from sim.report.reader import Results
from sim.report.wording import escape, listed


def cost_profiles(results: Results) -> list[dict[str, object]]:
    """The fitted parameters behind the step times, from the manifest: `profile`, `relative_error`."""
    found = results.manifest.get("cost_profile") or {}
    if not isinstance(found, dict):
        return []
    several = [value for value in found.values() if isinstance(value, dict)]
    unique = {str(value.get("profile")): value for value in several}
    return [found] if "profile" in found else list(unique.values())


def badges(results: Results) -> str:
    """The list of badges below the headline: cost profiles, then verification rules."""
    found = []
    for profile in cost_profiles(results):
        error = float(str(profile.get("relative_error") or 0))
        kind = "exact" if error == 0 else "good" if error <= 0.08 else "fair" if error <= 0.15 else "poor"
        words = "exact by definition" if error == 0 else f"step times ± {100 * error:.0f} % (one sigma)"
        hint = "calibrated on this GPU and format" if kind == "good" else "not calibrated on this GPU and format"
        hint = "a model with given times" if kind == "exact" else hint
        name = escape(profile.get("profile"))
        found.append(f'<li class="badge {kind}"><b>{name}</b> cost profile: {words}, {hint}</li>')
    found += _verification_badges(results)
    return f'<ul class="badges">{"".join(found)}</ul>' if found else ""


def _verification_badges(results: Results) -> list[str]:
    """One badge for all arms whose output stays the target's, one for each that changes it."""
    same = [arm for arm, (_, lossless) in results.verification.items() if lossless]
    rules = dict.fromkeys(results.verification[arm][0] for arm in same)
    same_badge = [
        f'<li class="badge good"><b>{escape(listed(same))}</b> lossless: verified by {escape(listed(list(rules)))}</li>'
    ]
    return same_badge * bool(same) + [
        f'<li class="badge poor"><b>{escape(arm)}</b> not lossless: {escape(rule)} changes the output</li>'
        for arm, (rule, lossless) in results.verification.items()
        if not lossless
    ]
