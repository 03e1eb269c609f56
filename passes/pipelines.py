"""The named pipelines. Each name can stand in a pipeline's text, and ``neuron-opt -O2`` runs ``O2``."""

PIPELINES = {
    "O0": "",
    "O1": "func(cse,dce)",
}
