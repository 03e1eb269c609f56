"""Where an FX node comes from: the user's innermost source line and the path of the module that ran it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

from neuron_ir.locations import UNKNOWN_LOC, FileLoc

# Files that hold no line of the program: generated code, and torch's note on the size checks that it adds.
_GENERATED = ("<", "torch/fx/")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def node_location(node: Any, origins: Mapping[str, Mapping[str, Any]] | None = None) -> FileLoc:
    """Give the innermost line of the user's (not torch's own) code and the module path of an FX node.

    `scope` of the result is the module path (`transformer.h.0.attn`). A node made by a decomposition has the
    trace of the node it came from; a node inside a region that was traced again finds its own through `origins`
    (node name -> meta); any other node without a trace takes that of its nearest traced input, at most
    four steps up.
    """
    level = [node]
    for _ in range(4):
        for one in level:
            meta = one.meta
            file, line = _innermost_user_frame(meta.get("stack_trace") or "")
            if not line and origins:
                meta = _origin_meta(meta, origins)
                file, line = _innermost_user_frame(meta.get("stack_trace") or "")
            if line:
                return FileLoc(file, line, scope=_module_path(meta.get("nn_module_stack")))
        level = [i for one in level for i in one.all_input_nodes]
    return UNKNOWN_LOC


def _origin_meta(meta: Mapping[str, Any], origins: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The meta of the exported node from which this one was made: the oldest known name along `from_node`."""
    found: Mapping[str, Any] = meta
    sources = list(meta.get("from_node") or ())
    while sources:
        source = sources.pop()
        found = origins.get(source.name, found)
        sources.extend(source.from_node or ())
    return found


def _module_path(stack: Any) -> str:
    """The path in the innermost entry of `nn_module_stack`, a dict key -> (path, class)."""
    if not stack:
        return ""
    path = next(reversed(stack.values()))[0]
    return _clean_path(path) if isinstance(path, str) and not path.startswith("_empty_nn_module") else ""


@lru_cache(maxsize=65536)
def _clean_path(path: str) -> str:
    """`L['self'].layers[0]` (Dynamo's spelling) and `layers.0` (export's) both give `layers.0`."""
    path = re.sub(r"\['([^']*)'\]|\[(\d+)\]", lambda m: "." + (m[1] or m[2]), path)
    path = re.sub(r"^(?:L__self__|L\.self|self)(?:\.|_(?=\w)|$)", "", path)
    return path.replace("._modules", "").strip(".")


@lru_cache(maxsize=65536)
def _innermost_user_frame(trace: str) -> tuple[str, int]:
    """The last frame outside torch itself and outside generated code; failing that, the last one of torch."""
    frames = [(file, int(line)) for file, line in _FRAME.findall(trace) if not file.startswith(_GENERATED)]
    root = _torch_root()
    for file, line in reversed(frames):
        if not file.startswith(root):
            return file, line
    return frames[-1] if frames else ("", 0)


@cache
def _torch_root() -> str:
    import torch

    return os.path.dirname(torch.__file__) + os.sep
