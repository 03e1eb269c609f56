"""The JAX plugin: ``jax.devices("neuron")``, found through the entry point group ``jax_plugins``.

Its priority is below the CPU's: nothing changes for a program that does not ask for it, with ``JAX_PLATFORMS=neuron``,
``jax.devices("neuron")`` or ``jax.default_device``.
"""

from typing import Any

__all__ = ["initialize", "live_handles"]

PRIORITY = -100  # the CPU's is 0, and the highest is the default platform


def initialize() -> None:
    """Make the platform known to JAX. JAX calls this for every installed plugin, so nothing is loaded here."""
    from neuron_ir.frontends.jax._compat import register_platform

    register_platform(_make_client, PRIORITY)


def _make_client() -> Any:
    """The client, made when JAX first looks at its platforms."""
    from neuron_ir.frontends.jax import rules
    from neuron_ir.frontends.jax._compat import make_plugin_client
    from neuron_ir.frontends.jax.pjrt.plugin import capsule

    rules.register()
    return make_plugin_client(capsule())


def live_handles() -> int:
    """How many buffers, programs and errors JAX holds on this platform: what grows here is a leak."""
    from neuron_ir.frontends.jax.pjrt.plugin import client

    client().sweep()
    return len(client().live)
