"""Compiled programs among what ``torch.compiler.save_cache_artifacts`` gives, and back from ``load_cache_artifacts``.

torch collects what each cache stores or finds in a process. Loading writes the programs to this machine's own cache, where a
process finds those whose key is its own: versions, processor and settings included.
"""

from __future__ import annotations

from functools import cache

from neuron_ir.cache import observe, opened
from neuron_ir.frontends.torch import _compat

__all__ = ["take_part"]

KIND = "neuron"


@cache
def take_part() -> None:
    """Tell torch of this kind of artifact and of every program that is stored or found from now on."""

    class NeuronArtifact(_compat.get("CacheArtifact")):  # type: ignore[misc]  # torch's own class, known at run time only
        def populate_cache(self) -> None:
            target = opened()
            if target is not None:
                target.put(self.key, self.content)

        @staticmethod
        def type() -> str:
            return KIND

    _compat.get("CacheArtifactFactory").register(NeuronArtifact)
    observe(lambda key, data: _compat.get("CacheArtifactManager").record_artifact(KIND, key, data))
