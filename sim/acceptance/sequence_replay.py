"""`sequence_replay`: recorded acceptance sequences, whole requests at a time. Exact where a recording is at hand."""

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import ConfigDict, Field

from sim.acceptance.base import ACCEPTANCE, MAX_DRAFT_TOKENS, AcceptanceModel, Floats, Streams, Tape
from sim.acceptance.pairing import laid_out
from sim.acceptance.recording import Recording, read_recording
from sim.acceptance.walk import walk
from sim.workload.requests import RequestTable


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

    counts_accepted: ClassVar[bool] = True

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
        return laid_out(self.recording(), requests, max_draft_tokens, streams)
