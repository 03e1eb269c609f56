"""Cheap compiles for the tests that ask what an operation, an imported program or a pass means, not what XLA makes of it.

Two thousand programs of one or two small operations cost XLA 60 to 200 ms each, of which its fusion emitter and LLVM's
optimisations take two thirds to three quarters; neither has a part in what these tests judge. Tests of the executor, its guards
and whole programs compile as users do, and so do tests marked ``accuracy``: XLA's own approximations are theirs to judge. Golden
files and the random modules of property/test_passes.py are run op by op, where XLA has nothing to fuse, and the many stages of
test_data_sizes.py ask for sizes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent
FOLDERS = ("golden/", "unit/dialects/", "unit/frontends/", "property/test_passes.py", "integration/test_data_sizes.py")

UNOPTIMISED = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
OPTIONS = {**UNOPTIMISED, "xla_cpu_use_fusion_emitters": False}

_originals: list[Any] = []  # JAX's own function while it is replaced


def wanted_for(item: pytest.Item) -> bool:
    """Whether a test's programs are compiled cheaply."""
    inside = item.path.is_relative_to(ROOT) and item.path.relative_to(ROOT).as_posix().startswith(FOLDERS)
    return inside and item.get_closest_marker("accuracy") is None


def switch(quick: bool) -> None:
    """Compile cheaply from now on, or as users do. What was compiled the other way is forgotten."""
    if quick == bool(_originals):
        return
    import jax
    from jax._src import compiler

    from neuron_ir.backends.jax_cpu import executable

    if quick:
        _originals.append(compiler.get_compile_options)
        compiler.get_compile_options = _quick_options
    else:
        compiler.get_compile_options = _originals.pop()
    jax.clear_caches()
    executable._cache.clear()


def _quick_options(*args: Any, env_options_overrides: dict[str, Any] | None = None, **kwargs: Any) -> Any:
    return _originals[-1](*args, env_options_overrides={**(env_options_overrides or {}), **OPTIONS}, **kwargs)
