"""What lies where: the root, the wheel, the size of modules and functions, imports, and what must not be named."""

import ast
import re
import tomllib
from collections.abc import Iterator

import pytest

from tests.static.sources import PACKAGES, ROOT, modules, repository_files, shown, tree

MODULE_LINES_MAX = 350
FUNCTION_LINES_MAX = 60
ROOT_HOLDS = {"pyproject.toml", "README.md", "dbos-config.yaml", "LICENSE", "tests", *PACKAGES}
# Hosts of package registries, put together here so that this file does not name them either.
REGISTRIES = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("anaconda", "org"),
        ("crates", "io"),
        ("rubygems", "org"),
        ("proxy", "golang", "org"),
    )
)


def test_the_root_holds_only_what_the_design_names() -> None:
    at_root = {path.parts[0] for path in repository_files()}
    assert {name for name in at_root - ROOT_HOLDS if not name.startswith(".")} == set()
    assert ROOT_HOLDS - at_root == set()


def test_nothing_names_the_host_of_a_package_registry() -> None:
    pattern = re.compile("|".join(rf"\b{re.escape(host)}\b" for host in REGISTRIES).encode())
    assert pattern.search(f"https://{REGISTRIES[0]}/simple".encode())
    found = [str(path) for path in repository_files() if pattern.search((ROOT / path).read_bytes())]
    assert found == []


def test_the_wheel_is_exactly_the_four_packages_and_each_is_typed() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert sorted(wheel["packages"]) == sorted(PACKAGES)
    assert [package for package in PACKAGES if not (ROOT / package / "py.typed").exists()] == []


def test_no_module_is_too_long() -> None:
    sizes = {shown(path): len(path.read_text().splitlines()) for path in modules()}
    assert {name: lines for name, lines in sizes.items() if lines > MODULE_LINES_MAX} == {}


def functions(module: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


def test_no_function_is_too_long() -> None:
    sizes = {f"{shown(path)}:{name}": lines for path in modules() for name, lines in functions(tree(path))}
    assert len(sizes) > 100
    assert {name: lines for name, lines in sizes.items() if lines > FUNCTION_LINES_MAX} == {}


def test_imports_are_absolute() -> None:
    found = [
        f"{shown(path)}:{node.lineno}"
        for path in modules()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert found == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_exists_and_every_module_says_what_it_is(package: str) -> None:
    root = __import__(package)
    assert [name for name in getattr(root, "__all__", ()) if not hasattr(root, name)] == []
    silent = [
        shown(path)
        for path in modules()
        if shown(path).startswith(f"{package}/") and path.stat().st_size and not ast.get_docstring(tree(path))
    ]
    assert silent == []
