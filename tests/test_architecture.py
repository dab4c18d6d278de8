"""The package: the size of its rooms, which part imports which, how many files a round takes."""

import ast
import sys
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import adafuse
from adafuse.decoding.candidates import Pool
from adafuse.decoding.round import Example

ROOT = Path(adafuse.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

BUDGETS = {
    "": 1274, "storage": 968, "records": 587, "servers": 1006, "tokenization": 1203, "models": 3681,
    "engine": 2304, "decoding": 3004, "methods": 2383, "benchmarks": 765, "metrics": 3807,
    "development": 1187, "config": 1347, "workflow": 5104, "report": 3367, "export": 639,
    "bench": 555, "serve": 1805, "lm_eval": 531, "cli": 4304, "toy": 1,
}  # fmt: skip
"""The most lines of each room, and of the files at the top: before adding, look for what to remove.

A room that needs more takes it from another one, or says what it does without.
"""

LISTENERS = {"ensemble.py", "decoding/run.py"}
"""What hears of a round (the scheduler's events), and takes no part in it."""

LAYERS = [
    {"errors", "startup", "toy", "version"},
    {"records"},
    {"storage"},
    {"options", "plugins"},
    {"servers", "tokenization"},
    {"models"},
    {"engine"},
    {"decoding"},
    {"benchmarks"},
    {"methods", "metrics"},
    {"ensemble", "results"},
    {"development"},
    {"config"},
    {"workflow"},
    {"report"},
    {"bench", "export", "lm_eval", "serve"},
    {"cli"},
]
"""From low to high; whatever is imported lies in the same part or in a lower one."""

LEVEL = {part: level for level, layer in enumerate(LAYERS) for part in layer}


def module(file):
    """The dotted name of a file of the package."""
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module(file): file for file in FILES}


def imported(file):
    """The modules of the package that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("adafuse"):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("adafuse"))


def part(name):
    """The part of the package that a module belongs to; none for the public face itself."""
    return [*name.split("."), ""][1]


def room(file):
    """The folder of the package that a file is in, with what is below it; "" at the top."""
    return file.relative_to(ROOT).parts[0] if file.parent != ROOT else ""


def test_no_room_is_larger_than_agreed():
    sizes = Counter()
    for file in FILES:
        sizes[room(file)] += len(file.read_text(encoding="utf-8").splitlines())
    assert sizes.keys() == BUDGETS.keys()
    assert not {name: size for name, size in sizes.items() if size > BUDGETS[name]}


def test_no_file_is_longer_than_500_lines_and_no_function_than_60():
    for file in (*FILES, *Path(__file__).parent.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 500, file
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno - node.lineno < 60, f"{file}: {node.name}"


def test_every_part_has_its_place():
    parts = {part(name) for name in MODULES} - {"", "__main__"}
    assert parts == set(LEVEL)


def test_no_arrow_points_from_a_lower_part_to_a_higher_one():
    wrong = [
        f"{name} imports {target}"
        for name, file in MODULES.items()
        if part(name) in LEVEL
        for target in imported(file)
        if part(target) in LEVEL and LEVEL[part(target)] > LEVEL[part(name)]
    ]
    assert not wrong


def test_no_modules_import_each_other_in_a_circle():
    arrows = {
        name: {target for target in imported(file) if target in MODULES} - {name, "adafuse"}
        for name, file in MODULES.items()
    }
    TopologicalSorter(arrows).prepare()


def test_one_file_writes_traces():
    writers = {file.name for file in FILES if "write_arrow(" in file.read_text(encoding="utf-8")}
    assert writers == {"parquet.py", "traces.py"}


def test_one_round_reaches_ten_files_and_is_read_in_five(pair, monkeypatch):
    reached = set()

    def follow(frame, event, _):
        if event == "call":
            reached.add(Path(frame.f_code.co_filename))

    def start(self, *args, **kwargs):
        sys.setprofile(follow)
        original_start(self, *args, **kwargs)

    def stop(self, *args, **kwargs):
        original_stop(self, *args, **kwargs)
        sys.setprofile(None)

    # What a model reads of its tokenizer once is no part of a round.
    pair.generate(["The dog"], max_new_tokens=1)
    original_start, original_stop = Pool.__init__, Example.check_stop
    monkeypatch.setattr(Pool, "__init__", start)
    monkeypatch.setattr(Example, "check_stop", stop)
    try:
        # Drafts are off: a round does not know of them.
        pair.generate(["The dog"], branching=2, max_new_tokens=12, drafts=[])
    finally:
        sys.setprofile(None)
    files = {str(file.relative_to(ROOT)) for file in reached if file.is_relative_to(ROOT)}
    files -= LISTENERS
    assert len(files) <= 10, " ".join(sorted(files))
    algorithm = {file for file in files if file.startswith(("decoding/", "methods/"))}
    assert len(algorithm) <= 5, " ".join(sorted(algorithm))
