"""What torch runs when it is imported, through the entry point group ``torch.backends``: names that torch must know by then."""

from neuron_ir.frontends.torch import _compat
from neuron_ir.frontends.torch.artifacts import take_part

__all__ = ["autoload"]


def autoload() -> None:
    """Make ``TORCH_LOGS="+neuron"`` mean this package's loggers, before torch reads that variable, and its artifacts known."""
    _compat.get("register_log")("neuron", "neuron_ir")
    take_part()
