"""The named pipelines. Each name can stand in a pipeline's text; ``neuron-opt -O2`` runs ``O2``, ``--pipeline trn2`` runs ``trn2``.

None of them changes a program's precision: ``precision`` must be asked for. ``trn1``, ``trn2`` and ``trn3`` are for the hardware:
they also put composites back and join products, which may round otherwise than the program does.
"""

_SIMPLIFY = "inline,func(canonicalize,fold_constants,canonicalize,cse,dce)"
_FOR_HARDWARE = f"{_SIMPLIFY},func(raise_composites,merge_matmuls,hoist,sink,canonicalize,cse,dce)"

PIPELINES = {
    "O0": "",
    "O1": _SIMPLIFY,
    "O2": f"{_SIMPLIFY},func(fuse)",
    "O3": f"{_SIMPLIFY},func(layout{{partition=false}},cse,dce,fuse,layout{{order=false}})",
    **{
        name: f"{_FOR_HARDWARE},func(layout{{partition=false}},fuse{{target={name}}},layout{{order=false}})"
        for name in ("trn1", "trn2", "trn3")
    },
}
