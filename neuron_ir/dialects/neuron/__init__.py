"""The ``neuron`` dialect: tensor ops, named as StableHLO names them where it can, and composites that accelerators keep whole."""
