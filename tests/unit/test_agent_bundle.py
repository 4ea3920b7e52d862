"""What is shipped: one file, small, old Python, nothing of ours left in it, the same every time."""

from __future__ import annotations

import ast
import sys
from collections import Counter

import pytest

from orchestrator.agent import bundle

SHIPPED = {
    "agent": bundle.agent_source,
    "plugin": bundle.plugin_source,
    "environment": bundle.environment_source,
}
NEW_SINCE_38 = {"removeprefix", "removesuffix", "with_stem", "pairwise", "bit_count"}


@pytest.fixture(params=SHIPPED)
def source(request):
    return SHIPPED[request.param]().decode()


def test_python_3_8_can_read_it(source):
    tree = ast.parse(source, feature_version=(3, 8))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not called & NEW_SINCE_38


def test_built_in_generics_stand_only_where_nobody_evaluates_them(source):
    """`list[str]` at run time is Python 3.9; in an annotation it is only text."""
    tree = ast.parse(source)
    annotations = set()
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            found = getattr(node, name, None)
            if found is not None:
                annotations |= set(ast.walk(found))
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and node not in annotations:
            value = node.value
            built_in = isinstance(value, ast.Name) and value.id in {"list", "dict", "set", "tuple"}
            assert not built_in


def test_only_the_standard_library(source):
    allowed = sys.stdlib_module_names | {"axolotl", "transformers", "__future__"}
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert all(name.split(".")[0] in allowed for name in names), names


def test_nothing_of_ours_is_left_in_the_joined_files():
    for make in (bundle.agent_source, bundle.environment_source):
        body = make().decode().split("\n", 1)[1]
        assert "orchestrator" not in body
        assert body.count("from __future__") == 1


def test_no_name_is_made_twice():
    """Joined modules share one namespace: two things of one name would silently become one."""
    for make in (bundle.agent_source, bundle.environment_source):
        names: Counter[str] = Counter()
        for node in ast.parse(make()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names[node.name] += 1
            elif isinstance(node, ast.Assign):
                names.update(one.id for one in node.targets if isinstance(one, ast.Name))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names[node.target.id] += 1
        assert [name for name, count in names.items() if count > 1] == []


def test_size():
    """The start of a job may add 200 KB to an instance; aim well below."""
    agent, plugin = len(bundle.agent_source()), len(bundle.plugin_source())
    assert agent + plugin < 100_000
    assert len(bundle.environment_source()) < 40_000


def test_the_same_every_time():
    assert bundle.join(bundle.AGENT_MODULES) == bundle.join(bundle.AGENT_MODULES)
    assert bundle.agent_source() is bundle.agent_source()


def test_comments_and_docstrings_go_and_strings_stay():
    text = bundle.agent_source().decode()
    assert "usage: gpujob_agent.py start ORDER" in text
    assert '"""Return' not in text
    assert "# nvidia" not in text
    compile(text, "gpujob_agent.py", "exec")
