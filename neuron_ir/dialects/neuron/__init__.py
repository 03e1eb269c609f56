"""The ``neuron`` dialect: tensor ops, named as StableHLO names them where it has a word, and composites an accelerator keeps whole."""
