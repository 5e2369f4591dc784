"""`specsim fit-acceptance`: parameters of the two-regime law from recorded acceptance sequences."""

from pathlib import Path

import click
import yaml

from sim.acceptance.recording import read_recording
from sim.calibration.acceptance import fit_regime
from sim.calibration.write import write_text

_PATH = click.Path(path_type=Path, dir_okay=False)
_DIGITS = 4


@click.command(name="fit-acceptance")
@click.argument("file", type=_PATH)
@click.option("--method", help="Which rows of FILE; may be left out when it has one method.")
@click.option("--description", default="", help="What was measured, for the file: model, drafter, text.")
@click.option("--source", default="", help="Where the sequences come from, for the file.")
@click.option("-o", "--output", type=_PATH, help="Write the YAML here instead of printing it.")
def fit_acceptance(file: Path, method: str | None, description: str, source: str, output: Path | None) -> None:
    """Fit `acceptance: {kind: regime, parameters: ...}` to recorded sequences (the FILE of `sequence_replay`).

    Matched together: tokens per step at K = 1..10, spread between requests, correlation of neighbouring steps.
    Takes about ten seconds; same file, same parameters. `specsim validate acceptance` says how good such fits are.
    """
    recording = read_recording(file, method, include_degenerate=False)
    parameters = fit_regime(recording).model_dump(mode="json")
    rounded = {key: _rounded(value) for key, value in parameters.items()}
    command = f"specsim fit-acceptance {file.name}{f' --method {method}' if method else ''}"
    facts = {"description": description, "source": source, "fitted_by": command, "requests": len(recording.accepted)}
    document = {**{key: value for key, value in facts.items() if value}, "parameters": rounded}
    text = yaml.safe_dump(document, sort_keys=False, width=120, default_flow_style=None, allow_unicode=True)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(output, text)


def _rounded(value: float | list[float]) -> float | list[float]:
    return [round(item, _DIGITS) for item in value] if isinstance(value, list) else round(value, _DIGITS)
