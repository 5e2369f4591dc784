"""`stream_replay`: the arm's method drafts from recorded token ids, so that acceptance is computed, not assumed."""

from functools import lru_cache
from pathlib import Path
from typing import Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, PrivateAttr

from sim.acceptance.base import ACCEPTANCE, AcceptanceModel, Floats, Ints, Streams, Tape
from sim.acceptance.pairing import laid_out
from sim.acceptance.recording import Recording
from sim.acceptance.walk import walk
from sim.errors import InvariantError, ScenarioError
from sim.proposers.base import Drafts, Proposer
from sim.token_streams.streams import TokenStreams, read_streams
from sim.units import PositiveCount
from sim.workload.requests import RequestTable


@ACCEPTANCE.register
class StreamReplay(AcceptanceModel):
    """Recorded token ids: the arm's method (`ngram`, `suffix`, `rest`) drafts from them with its own settings and K.

    A draft is accepted where it is the recorded output: exact for greedy decoding, whatever the settings (bonus token
    not counted). A workload row whose prompt and output lengths are those of a recorded request replays that very
    request, so `workload.trace: {path: FILE, format: streams}` replays them all. Other rows get a recorded request of
    similar output length, drawn by row among the 16 nearest, cut at the end of the row's output; a longer row goes on
    with the next longer recorded requests, whole ones. The drafts are always made from the recorded prompt.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "stream_replay", "path": "streams.jsonl"}]})

    kind: Literal["stream_replay"] = "stream_replay"
    path: str = Field(
        min_length=1,
        description="JSON lines or parquet with prompt_token_ids and output_token_ids, or CSV of relabelled streams",
    )
    max_output_tokens: PositiveCount | None = Field(
        default=None,
        description="leave out recorded requests with longer outputs: those that ran into a length limit are often "
        "repetition loops, which draft absurdly well; null = use all",
    )

    _proposer: Proposer | None = PrivateAttr(default=None)

    def located(self, base_dir: Path) -> Self:
        """With `path` made absolute, relative to the scenario's folder."""
        return self.model_copy(update={"path": str((base_dir / self.path).resolve())})

    def drafted_by(self, proposer: Proposer | None) -> Self:
        """With the rule that drafts."""
        if proposer is None:
            raise ScenarioError("acceptance `stream_replay` is for methods that draft from tokens: ngram, suffix, rest")
        bound = self.model_copy()
        bound._proposer = proposer
        return bound

    def recording(self, max_draft_tokens: int) -> Recording:
        """The recorded requests with what the method drafts in them.

        Raises:
            ScenarioError: the file cannot be used, see `read_streams`.
        """
        if self._proposer is None:
            raise InvariantError("stream_replay was not told what drafts; see AcceptanceModel.drafted_by")
        streams = read_streams(Path(self.path))
        return _replayed(streams, self._proposer, max_draft_tokens, self.max_output_tokens)

    def survival(self, max_draft_tokens: int) -> Floats:
        """Exact for the file: all its steps at this K (requests weighted by their length)."""
        return _survival(self.recording(max_draft_tokens), max_draft_tokens).copy()

    def tape(self, requests: RequestTable, max_draft_tokens: int, streams: Streams) -> Tape:
        """Pair rows with recorded requests and lay out what is drafted and accepted in them."""
        return laid_out(self.recording(max_draft_tokens), requests, max_draft_tokens, streams)


@lru_cache(maxsize=8)
def _replayed(streams: TokenStreams, proposer: Proposer, max_draft_tokens: int, longest: int | None) -> Recording:
    """Drafts of all requests of at least 2 output tokens (others have no decode step), sorted by length."""
    drafts = proposer.replay(streams, max_draft_tokens)
    usable = streams.output_tokens > 1
    if longest is not None:
        usable &= streams.output_tokens <= longest
    if not usable.any():
        raise ScenarioError(
            "no recorded request has 2 or more output tokens" + (f", at most {longest}" * bool(longest))
        )
    order = np.lexsort((streams.prompt_tokens, streams.output_tokens))
    return recorded(streams, drafts, order[usable[order]])


def recorded(streams: TokenStreams, drafts: Drafts, order: Ints) -> Recording:
    """Replayed requests as a recording, in the given order of request numbers."""
    ends = np.cumsum(streams.output_tokens - 1)[:-1]
    accepted = np.split(drafts.accepted.astype(np.uint8), ends)
    proposed = np.split(drafts.proposed.astype(np.uint8), ends)
    return Recording(
        tuple(accepted[index] for index in order.tolist()),
        tuple(proposed[index] for index in order.tolist()),
        streams.output_tokens[order] - 1,
        streams.prompt_tokens[order],
    )


@lru_cache(maxsize=64)
def _survival(recording: Recording, max_draft_tokens: int) -> Floats:
    return walk(recording.tape(max_draft_tokens), recording.table(), max_draft_tokens).survival
