"""What may be imported where: the layers of the house stay apart."""
import ast
import os

import pytest

import kiel

ROOT = os.path.dirname(os.path.abspath(kiel.__file__))
# bytes in, bytes out; events in, actions out: time, chance and the network come from outside
PURE = ("protocol", "compression", "groups", os.path.join("clients", "batching.py"))
IMPURE = {"tornado", "asyncio", "socket", "select", "threading", "time", "random"}


def modules():
    """The paths (below kiel/) of all modules of the rooms that have to be pure."""
    for room in PURE:
        path = os.path.join(ROOT, room)
        if os.path.isfile(path):
            yield room
        for folder, _, names in os.walk(path):
            for name in names:
                if name.endswith(".py"):
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


def imported(source):
    """The first parts of the names of all modules that a source imports, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0]


def test_the_rooms_are_found():
    found = set(modules())
    assert os.path.join("protocol", "schema.py") in found
    assert os.path.join("protocol", "records", "__init__.py") in found
    assert len(found) > 10


@pytest.mark.parametrize("module", sorted(modules()))
def test_nothing_pure_imports_what_is_not(module):
    with open(os.path.join(ROOT, module), "rb") as source:
        names = set(imported(source.read()))
    assert not names & IMPURE


def test_imports_are_seen_wherever_they_are():
    source = "import os.path, socket as s\nfrom time import sleep\ndef f():\n    from tornado import gen\n"
    assert set(imported(source)) == {"os", "socket", "time", "tornado"}
    assert set(imported("from . import errors")) == set()
