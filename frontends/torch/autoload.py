"""What torch runs when it is imported, through the entry point group ``torch.backends``: the name ``neuron`` for ``TORCH_LOGS``."""

from neuron_ir.frontends.torch import _compat

__all__ = ["autoload"]


def autoload() -> None:
    """Make ``TORCH_LOGS="+neuron"`` mean the loggers of this package. torch reads that variable right after this."""
    _compat.get("register_log")("neuron", "neuron_ir")
