"""`sequence_replay`: recorded acceptance sequences, whole requests at a time. Exact where a recording is at hand."""

from pathlib import Path
from typing import Literal, Self

import numpy as np
from pydantic import ConfigDict, Field

from sim.acceptance.base import ACCEPTANCE, MAX_DRAFT_TOKENS, AcceptanceModel, Counts, Floats, Ints, Streams, Tape
from sim.acceptance.recording import Recording, joined, read_recording
from sim.acceptance.walk import walk
from sim.workload.requests import RequestTable

#: A row draws one of this many recorded requests whose output lengths are nearest to its own.
_SIMILAR_REQUESTS = 16


@ACCEPTANCE.register
class SequenceReplay(AcceptanceModel):
    """Recorded sequences: a letter per decode position, `a` = 0 drafts accepted, `b` = 1, ..., bonus token not counted.

    A workload row gets a recorded request of similar output length (drawn by row among the nearest), cut at the end of
    the row's output; a longer row goes on with the next longer recorded requests, whole ones, round and round.
    A column `drafted` (n-gram) says how many drafts were found; `a` there means nothing is drafted and verified.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"kind": "sequence_replay", "path": "accepted.csv.gz", "method": "eagle"}]}
    )

    kind: Literal["sequence_replay"] = "sequence_replay"
    path: str = Field(description="CSV, or CSV.gz, with columns method, accepted and optionally drafted, degenerate")
    method: str | None = Field(
        default=None, description="which rows to use; may be left out when the file has one method"
    )
    include_degenerate: bool = Field(
        default=False, description="also use requests marked degenerate (repetition loops)"
    )
    recorded_draft_tokens: int = Field(
        default=20,
        ge=1,
        le=25,
        description="drafts per step of the recording: letters cannot say more, larger K is refused",
    )

    def located(self, base_dir: Path) -> Self:
        """With `path` made absolute, relative to the scenario's folder."""
        return self.model_copy(update={"path": str((base_dir / self.path).resolve())})

    def recording(self) -> Recording:
        """The recorded requests.

        Raises:
            ScenarioError: the file cannot be used, see `read_recording`.
        """
        return read_recording(Path(self.path), self.method, self.include_degenerate)

    def check_files(self) -> None:
        """Read the recording."""
        self.recording()

    def max_supported_draft_tokens(self) -> int:
        """The drafts per step of the recording."""
        return min(self.recorded_draft_tokens, MAX_DRAFT_TOKENS)

    def survival(self, max_draft_tokens: int) -> Floats:
        """Exact for the file: all its steps at this K (requests weighted by their length)."""
        self.check_draft_tokens(max_draft_tokens)
        recording = self.recording()
        return walk(recording.tape(max_draft_tokens), recording.table(), max_draft_tokens).survival

    def tape(self, requests: RequestTable, max_draft_tokens: int, streams: Streams) -> Tape:
        """Pair rows with recorded requests and lay their sequences out."""
        self.check_draft_tokens(max_draft_tokens)
        recording = self.recording()
        wanted = requests.output_tokens - 1
        first = _paired(recording.decoded_tokens, wanted, streams.per_row("acceptance/replay", len(requests)))
        pairs = list(zip(first.tolist(), wanted.tolist(), strict=True))
        accepted = tuple(_cycled(recording.accepted, start, length) for start, length in pairs)
        proposed = recording.proposed
        if proposed is not None:
            proposed = tuple(_cycled(proposed, start, length) for start, length in pairs)
        return joined(accepted, proposed, max_draft_tokens)


def _paired(recorded: Ints, wanted: Ints, uniform: Floats) -> Ints:
    """For each wanted length one of the recorded requests nearest in rank (`recorded` is sorted), by `uniform`."""
    width = min(_SIMILAR_REQUESTS, len(recorded))
    middle = (np.searchsorted(recorded, wanted, side="left") + np.searchsorted(recorded, wanted, side="right")) // 2
    lowest = np.clip(middle - width // 2, 0, len(recorded) - width)
    chosen: Ints = lowest + (uniform * width).astype(np.int64)
    return chosen


def _cycled(sequences: tuple[Counts, ...], start: int, length: int) -> Counts:
    """`length` positions from whole sequences one after another, beginning with `start`."""
    parts, covered, index = [sequences[start][:length]], len(sequences[start]), start
    while covered < length:
        index = (index + 1) % len(sequences)
        parts.append(sequences[index][: length - covered])
        covered += len(sequences[index])
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
