"""The dialects: every op of the Neuron IR, one class each. Importing this package registers them."""

from importlib import import_module
from pkgutil import walk_packages

for _module in walk_packages(__path__, __name__ + "."):
    import_module(_module.name)
