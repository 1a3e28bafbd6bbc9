"""The rooms of the package and what each may import; what the package never does."""

import ast
import inspect
import itertools
from pathlib import Path

import pytest

import bayeseq

ROOT = Path(bayeseq.__file__).parent

# What each room may import besides itself. A dot names one module of a room, a bare name all of it.
ROOMS = {
    "shapes": [],
    "linalg": [],
    "chain": ["shapes", "linalg"],
    "kernels": ["chain", "shapes", "linalg"],
    "data": ["chain", "shapes", "linalg"],
    "models": ["kernels", "chain", "shapes", "linalg"],
    "inference": ["models", "kernels", "chain", "shapes", "linalg"],
    "labelers": [
        "inference",
        "models",
        "kernels",
        "diagnostics.arviz",
        "diagnostics.uncertainty",
        "data",
        "chain",
        "shapes",
        "linalg",
    ],
    "baselines": [
        "inference.optimise",
        "labelers",
        "data",
        "kernels",
        "chain",
        "shapes",
        "linalg",
    ],
    "diagnostics": ["data.schemes", "data.errors"],
    "analysis": [
        "labelers",
        "baselines",
        "inference",
        "models",
        "kernels",
        "diagnostics",
        "data",
        "chain",
        "shapes",
        "linalg",
    ],
    "plots": ["diagnostics"],
    "report": ["*"],
    "experiments": ["*"],
    "cli": ["*"],
    "__init__": ["*"],
}
WITHOUT_TORCH = ("diagnostics", "plots")
NEVER_IMPORTED = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
NEVER_CALLED = {"eval", "exec", "compile", "__import__"}
NEVER_USED = {("torch", "load"), ("np", "load"), ("numpy", "load"), ("torch", "hub")}

MODULES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))


def parse(module):
    return ast.parse((ROOT / module).read_text(encoding="utf-8"))


def room_of(module):
    return module.parts[0].removesuffix(".py")


def imports(tree):
    """Every module imported anywhere in a file, and whatever is taken from it, as dotted names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole path: from bayeseq.room import thing"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_allowed(room, target):
    """Whether a module of a room may import `bayeseq.<target>`."""
    if room == target.split(".")[0]:
        return True
    return any(rule == "*" or f"{target}.".startswith(f"{rule}.") for rule in ROOMS[room])


def backward_imports(module, tree):
    return [
        name
        for name in imports(tree)
        if name.split(".")[0] == "bayeseq"
        and not is_allowed(room_of(module), name.removeprefix("bayeseq").removeprefix("."))
    ]


def test_every_room_is_known():
    assert {room_of(module) for module in MODULES} <= ROOMS.keys()


def test_rooms_form_no_circle():
    """Nothing that a room may import may import it back, at whatever distance."""
    for room in ROOMS:
        reached, open_ = set(), [rule.split(".")[0] for rule in ROOMS[room] if rule != "*"]
        while open_:
            other = open_.pop()
            if other not in reached:
                reached.add(other)
                open_ += [rule.split(".")[0] for rule in ROOMS[other]]
        assert room not in reached


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_imports_go_one_way(module):
    assert backward_imports(module, parse(module)) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("chain/new.py", "from bayeseq.data import Corpus"),
        ("chain/new.py", "import bayeseq.labelers.base"),
        ("shapes.py", "from bayeseq.chain.potentials import Chain"),
        ("data/new.py", "def f():\n    from bayeseq.labelers import base"),
        ("data/new.py", "from bayeseq import labelers"),
        ("data/new.py", "import bayeseq"),
        ("diagnostics/new.py", "from bayeseq.data import Corpus"),
        ("diagnostics/new.py", "from bayeseq.data.batch import SequenceBatch"),
        ("plots/new.py", "from bayeseq.data.errors import DataError"),
        ("labelers/new.py", "from bayeseq.baselines import CRF"),
        ("models/new.py", "from bayeseq.inference import svi"),
    ],
)
def test_a_backward_import_is_noticed(module, line):
    assert len(backward_imports(Path(module), ast.parse(line))) == 1


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_nothing_is_unpickled_or_evaluated(module):
    tree = parse(module)
    assert not {name.split(".")[0] for name in imports(tree)} & NEVER_IMPORTED
    assert not {tuple(name.split(".")[:2]) for name in imports(tree)} & NEVER_USED
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in NEVER_CALLED, f"line {node.lineno}"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in NEVER_USED, f"line {node.lineno}"


@pytest.mark.parametrize("module", [m for m in MODULES if room_of(m) in WITHOUT_TORCH], ids=str)
def test_numpy_rooms_stay_without_torch(module):
    assert not [name for name in imports(parse(module)) if name.split(".")[0] in {"torch", "pyro"}]


# ---- the public face --------------------------------------------------------------------------


def described_constants():
    """The names of the package's top level that are assigned and followed by a string."""
    body = parse(Path("__init__.py")).body
    for node, after in itertools.pairwise(body):
        target = getattr(node, "target", None) or (getattr(node, "targets", None) or [None])[0]
        if isinstance(target, ast.Name) and isinstance(after, ast.Expr):
            text = after.value
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield target.id


def has_own_docstring(thing):
    """Not inherited, and not the one that dataclass and NamedTuple make of the fields."""
    text = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    return bool(text) and not text.startswith(f"{thing.__name__}(")


@pytest.mark.parametrize("name", bayeseq.__all__)
def test_public_names_are_described(name):
    thing = getattr(bayeseq, name)
    if inspect.isclass(thing) or inspect.isroutine(thing):
        assert has_own_docstring(thing)
    else:
        assert name in set(described_constants())


@pytest.mark.parametrize("name", [n for n in bayeseq.__all__ if inspect.isclass(vars(bayeseq)[n])])
def test_public_methods_are_described(name):
    for cls in getattr(bayeseq, name).__mro__:
        if cls.__module__.startswith("bayeseq."):
            for method, value in vars(cls).items():
                value = getattr(value, "__func__", value)
                if not method.startswith("_") and (
                    inspect.isfunction(value) or isinstance(value, property)
                ):
                    assert value.__doc__, f"{cls.__name__}.{method}"


def test_public_names_are_real_and_named_once():
    assert len(set(bayeseq.__all__)) == len(bayeseq.__all__)
    assert all(hasattr(bayeseq, name) for name in bayeseq.__all__)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_every_module_says_what_it_holds(module):
    assert ast.get_docstring(parse(module))
