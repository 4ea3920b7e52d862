"""Runs the official `runpod` SDK in a process of its own: a JSON line in, a JSON line out.

Its import takes seconds, reads the user's home and changes loggers, so no test imports it. A line
is {"call", "args", "kwargs"}; the answer {"result"} or {"error": [class names, base classes too]}.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import requests
import runpod
from runpod.api.graphql import run_graphql_query

timeout_s = [30.0]  # as the SDK says; a test of a hang shortens it: what is raised stays the same


def shorten() -> None:
    usual = requests.post

    def post(*args: Any, **kwargs: Any) -> Any:
        assert kwargs["timeout"] == 30
        return usual(*args, **(kwargs | {"timeout": timeout_s[0]}))

    requests.post = post


def main() -> None:
    shorten()
    runpod.api_key = sys.argv[1]
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        name = asked["call"]
        if name == "api_key":
            runpod.api_key = asked["args"][0]
            found: dict[str, Any] = {"result": None}
        elif name == "timeout":
            timeout_s[0] = asked["args"][0]
            found = {"result": None}
        else:
            act = run_graphql_query if name == "query" else getattr(runpod, name)
            try:
                found = {"result": act(*asked["args"], **asked["kwargs"])}
            except Exception as error:
                kinds = [kind.__name__ for kind in type(error).__mro__]
                found = {"error": kinds, "text": str(error)}
        print(json.dumps(found, default=str), flush=True)


if __name__ == "__main__":
    main()
