"""A setting for rules: made-up step times, acceptance and future."""

import dataclasses

import numpy as np

from sim.draft_length.base import Load, Outcome, Setting

ALPHA = 0.7


def step_seconds(num_seqs: int, kv_tokens: int, drafts: int, passes: int) -> float:
    """Flat up to 90 tokens, then linear; drafter passes of 0.3 ms."""
    return 1e-3 * (5.0 + 0.05 * max(0, num_seqs + drafts - 90) + 2e-5 * kv_tokens + 0.3 * passes)


def made_up() -> Setting:
    """The setting that tests start from."""
    rng = np.random.Generator(np.random.Philox(3))
    future = rng.geometric(1 - ALPHA, 500) - 1

    def taken(cursor, drafts):
        return np.minimum(future[cursor % 500], drafts)

    return Setting(
        max_draft_tokens=5,
        max_num_seqs=256,
        num_requests=400,
        step_seconds=step_seconds,
        survival=lambda k: ALPHA ** np.arange(1, k + 1),
        verified=lambda cursor, k: np.full(len(cursor), k),
        taken=taken,
        confident=lambda threshold, sharpness: np.minimum(future, 5).astype(np.uint8),
    )


def other(setting: Setting, **changes) -> Setting:
    return dataclasses.replace(setting, **changes)


def outcome(num_seqs: int, drafts, accepted, rows=None) -> Outcome:
    drafts, accepted = np.atleast_1d(drafts), np.atleast_1d(accepted)
    return Outcome(num_seqs, np.arange(len(drafts)) if rows is None else np.array(rows), drafts, accepted)


def load(num_seqs: int, context: int = 1000, left: int = 100, first: int = 0) -> Load:
    rows = np.arange(first, first + num_seqs)
    full = np.full(num_seqs, 1)
    return Load(num_seqs, rows, rows * 7 % 500, full * left, full * context, full)
