"""Made-up token streams with the repetition of real ones; also writes the file that ships with the scenarios.

Usage: python tests/token_streams/synthetic.py (writes scenarios/streams/code-editing.jsonl)
"""

import json
from itertools import chain
from pathlib import Path

import numpy as np

SHIPPED = Path(__file__).resolve().parents[2] / "scenarios" / "streams" / "code-editing.jsonl"
IDIOMS, OWN_NAMES, VOCABULARY = 160, 24, 4000


def code_editing(num_requests, seed=0):
    """Requests to edit a file: the prompt holds it, the output repeats it with some lines changed, dropped or added.

    Lines are idioms of 4 to 12 tokens that all files share (frequent ones first), with names of the file's own in their
    gaps. An output starts with a few words that nothing predicts.
    """
    draws = np.random.Generator(np.random.Philox(seed))
    idioms = [draws.integers(100, VOCABULARY, draws.integers(4, 13)).tolist() for _ in range(IDIOMS)]
    shares = 1 / np.arange(1, IDIOMS + 1)
    return [_request(draws, idioms, shares / shares.sum()) for _ in range(num_requests)]


def _request(draws, idioms, shares):
    names = draws.integers(VOCABULARY, 2 * VOCABULARY, OWN_NAMES).tolist()

    def line():
        tokens = list(idioms[draws.choice(len(idioms), p=shares)])
        tokens[draws.integers(len(tokens))] = names[min(draws.geometric(0.2), OWN_NAMES) - 1]
        return [*tokens, 10]  # the end of a line

    file = [line() for _ in range(draws.integers(12, 36))]
    edited = []
    for old in file:
        fate = draws.random()
        edited += [line()] if fate < 0.12 else [] if fate < 0.18 else [old, line()] if fate < 0.26 else [old]
    ask, say = (draws.integers(20, 100, draws.integers(4, most)).tolist() for most in (20, 16))
    return [*ask, *chain(*file)], [*say, *chain(*edited), 2]


def text(requests):
    """JSON lines, without blanks."""
    rows = [{"prompt_token_ids": prompt, "output_token_ids": output} for prompt, output in requests]
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)


if __name__ == "__main__":
    SHIPPED.write_text(text(code_editing(80, seed=7)), encoding="utf-8")
