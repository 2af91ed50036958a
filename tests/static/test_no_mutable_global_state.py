"""No module keeps mutable global state: what a module or a class binds is a constant, or sealed as one.

Seen are containers (literals, comprehensions, constructors), locks, events and queues bound by a module or class body,
`global`, and caches hidden behind a decorator. Objects that are declarations (a Typer group, a set of tools, an agent)
are built once by their module and are not state.
"""

import ast
from collections.abc import Iterator

import pytest

from tests.static.sources import modules, shown, tree

LITERALS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
CONSTRUCTORS = frozenset({
    "list", "dict", "set", "bytearray", "deque", "defaultdict", "Counter", "OrderedDict", "ChainMap", "count", "cycle",
    "WeakKeyDictionary", "WeakValueDictionary", "WeakSet", "Lock", "RLock", "Event", "Condition", "Semaphore", "Queue",
    "SimpleQueue", "local", "ContextVar", "iter",
})  # fmt: skip
CACHES = frozenset({"cache", "lru_cache", "cached"})


def called(node: ast.expr) -> str:
    """The last name of what is called or named: `collections.deque` is `deque`, `dict[str, int]` is `dict`."""
    match node:
        case ast.Call(func=what) | ast.Subscript(value=what):
            return called(what)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def is_mutable(value: ast.expr) -> bool:
    if isinstance(value, LITERALS):
        return True
    if isinstance(value, ast.Call):
        return called(value) in CONSTRUCTORS
    if isinstance(value, ast.Tuple):
        return any(is_mutable(item) for item in value.elts)
    if isinstance(value, ast.IfExp):
        return is_mutable(value.body) or is_mutable(value.orelse)
    if isinstance(value, ast.BoolOp):
        return any(is_mutable(item) for item in value.values)
    return False


def bindings(body: list[ast.stmt]) -> Iterator[tuple[int, str, ast.expr]]:
    """What the body of a module or class binds, also inside `if`, `try` and `with`."""
    for node in body:
        match node:
            case ast.Assign(targets=targets, value=value):
                yield node.lineno, ast.unparse(targets[0]), value
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield node.lineno, ast.unparse(target), value
            case ast.ClassDef(body=inner) | ast.With(body=inner):
                yield from bindings(inner)
            case ast.If(body=inner, orelse=other):
                yield from bindings(inner + other)
            case ast.Try(body=inner, orelse=other, finalbody=last, handlers=handlers):
                yield from bindings(inner + other + last)
                for handler in handlers:
                    yield from bindings(handler.body)
            case _:
                pass


def state(module: ast.Module) -> Iterator[tuple[int, str]]:
    for line, name, value in bindings(module.body):
        if name not in ("__all__", "__slots__", "model_config") and is_mutable(value):
            yield line, name
    for node in ast.walk(module):
        if isinstance(node, ast.Global):
            yield node.lineno, f"global {', '.join(node.names)}"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from ((node.lineno, f"@{called(d)}") for d in node.decorator_list if called(d) in CACHES)


def test_no_module_keeps_mutable_global_state() -> None:
    found = [f"{shown(path)}:{line}: {name}" for path in modules() for line, name in state(tree(path))]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "SEEN = []",
        "SEEN: dict[str, int] = {}",
        "SEEN = {n for n in range(3)}",
        "SEEN = dict[str, int]()",
        "import collections\nSEEN = collections.defaultdict(list)",
        "PAIR = (1, [])",
        "class A:\n    seen = []",
        "if True:\n    SEEN = set()",
        "try:\n    SEEN = 1\nexcept ImportError:\n    SEEN = {}",
        "n = 0\ndef f():\n    global n\n    n += 1",
        "from functools import lru_cache\n@lru_cache(maxsize=9)\ndef f(): ...",
        "import threading\nLOCK = threading.Lock()",
    ],
)
def test_the_check_sees(source: str) -> None:
    assert list(state(ast.parse(source))) != []


@pytest.mark.parametrize(
    "source",
    [
        "STATES = MappingProxyType({'a': frozenset({1})})",
        "NAMES = frozenset({1, 2})",
        "NAMES = tuple(n for n in range(3))",
        "__all__ = ['a']",
        "def f():\n    seen = []\n    return seen",
        "TIMEOUT_S = 3",
    ],
)
def test_the_check_lets_pass(source: str) -> None:
    assert list(state(ast.parse(source))) == []
