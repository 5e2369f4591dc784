"""The structure budgets of docs/architecture.md. Import floors are checked by import-linter (`make check`)."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path
from statistics import median, quantiles

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "sim").rglob("*.py"))
MAX_FILE_LINES = 300
MAX_HOT_LOOP_LINES = 120
MEDIAN_FUNCTION_LINES, P95_FUNCTION_LINES, MAX_FUNCTION_LINES = 8, 30, 60

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> list[Function]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, Function)]


def body_lines(function: Function) -> int:
    """Lines of the body without the docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return 0 if not body else (body[-1].end_lineno or 0) - body[0].lineno + 1


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_files_stay_within_a_few_screens(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= MAX_FILE_LINES, f"{name_of(path)} has {lines} lines: split it by concept"


def test_hot_loop_fits_its_page() -> None:
    assert len((ROOT / "sim/server/server.py").read_text().splitlines()) <= MAX_HOT_LOOP_LINES


def test_functions_stay_short() -> None:
    sizes = {f"{name_of(p)}:{f.lineno} {f.name}": body_lines(f) for p in SOURCES for f in functions(p)}
    worst = max(sizes, key=lambda key: sizes[key])
    assert sizes[worst] <= MAX_FUNCTION_LINES, f"{worst} has {sizes[worst]} lines"
    assert median(sizes.values()) <= MEDIAN_FUNCTION_LINES
    assert quantiles(sizes.values(), n=20)[-1] <= P95_FUNCTION_LINES


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_no_project_import_inside_a_function_and_no_star(path: Path) -> None:
    for function in functions(path):
        for node in ast.walk(function):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("sim"), f"{name_of(path)}:{node.lineno}"
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    assert not [node for node in imports if node.names[0].name == "*"]


def imported_modules(path: Path, known: set[str]) -> set[str]:
    """Modules of the project that a module imports when it is imported itself, packages left out."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:  # not under `if TYPE_CHECKING`
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & known


def test_no_import_cycle() -> None:
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in SOURCES if path.stem != "__init__"
    }
    order = TopologicalSorter({name: imported_modules(path, set(names)) for name, path in names.items()})
    assert len(list(order.static_order())) == len(names) > 100  # raises CycleError with the cycle


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_public_names_are_documented(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), f"{name_of(path)} has no module docstring"
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{name_of(path)}:{node.lineno} {node.name} has no docstring"


def test_nothing_below_the_rim_prints() -> None:
    rim = {"cli", "report"}
    for path in SOURCES:
        if path.relative_to(ROOT / "sim").parts[0] in rim:
            continue
        calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        printing = [n.lineno for n in calls if isinstance(n.func, ast.Name) and n.func.id == "print"]
        assert not printing, f"{name_of(path)}:{printing}"
