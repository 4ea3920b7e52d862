"""What is shipped to an instance: the agent's modules joined into one file, and the two beside it.

The joining runs in memory, without network, and gives the same bytes every time. A module's own
imports of its neighbours fall away, those of the standard library move to the top; docstrings and
comments stay at home.
"""

from __future__ import annotations

import ast
import io
import tokenize
from functools import cache
from pathlib import Path

AGENT_FILE = "gpujob_agent.py"
PLUGIN_FILE = "gpujob_plugin.py"
ENVIRONMENT_FILE = "gpujob_environment.py"
PLUGIN_CLASS = "gpujob_plugin.GpujobPlugin"  # what Axolotl's `plugins:` names
# Each imports only those before it.
AGENT_MODULES = (
    "files",
    "procs",
    "logs",
    "failures",
    "metrics",
    "watchdog",
    "gauge",
    "weights",
    "verdict",
    "order",
    "carrier",
    "notice",
    "listing",
    "rescue",
    "keeper",
    "daemon",
    "commands",
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
PACKAGE = "orchestrator.agent"
HEAD = '''"""Shipped by gpujob. Made from {package}: {modules}. Not to be edited."""
from __future__ import annotations
'''


@cache
def agent_source() -> bytes:
    """Return the agent as one file, for Python 3.8 and newer, standard library only."""
    return join(AGENT_MODULES)


@cache
def plugin_source() -> bytes:
    """Return the Axolotl plugin."""
    return _read("plugin").encode()


@cache
def environment_source() -> bytes:
    """Return the builder of Axolotl's environment."""
    return join(("files", "procs", "builder", "environment"))


def join(modules: tuple[str, ...]) -> bytes:
    """Return modules of this package as one source file."""
    imports: set[str] = set()
    bodies = []
    for module in modules:
        found, body = _split(_read(module))
        imports |= found
        bodies.append(f"# --- {module}\n{body}")
    head = HEAD.format(package=PACKAGE, modules=", ".join(modules))
    return (head + "\n".join(sorted(imports)) + "\n" + "".join(bodies)).encode()


def _read(module: str) -> str:
    return (Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8")


def _split(source: str) -> tuple[set[str], str]:
    """Return the imports that stay, one a line, and the rest without docstrings and comments."""
    tree = ast.parse(source)
    lines = source.splitlines()
    imports: set[str] = set()
    dropped: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            imports |= {f"import {alias.name}" for alias in node.names}
            dropped.append(node)
        elif isinstance(node, ast.ImportFrom):
            ours = (node.module or "").startswith(PACKAGE)
            if not ours and node.module != "__future__":
                imports |= {f"from {node.module} import {alias.name}" for alias in node.names}
            dropped.append(node)
    for inner in ast.walk(tree):
        if isinstance(inner, DOCUMENTED) and ast.get_docstring(inner):
            first = inner.body[0]
            if len(inner.body) > 1:
                dropped.append(first)
            else:
                _blank(lines, first)
                lines[first.lineno - 1] = " " * first.col_offset + "pass"
    for unwanted in dropped:
        _blank(lines, unwanted)
    for token in tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline):
        if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#"):
            lines[token.start[0] - 1] = ""
    return imports, "\n".join(line for line in lines if line) + "\n"


def _blank(lines: list[str], node: ast.stmt) -> None:
    for number in range(node.lineno - 1, node.end_lineno or node.lineno):
        lines[number] = ""
