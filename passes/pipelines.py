"""The named pipelines. Each name can stand in a pipeline's text; ``neuron-opt -O2`` runs ``O2``, ``--pipeline trn2`` runs ``trn2``.

None of them changes a program's precision: ``precision`` must be asked for. ``O1`` keeps every bit. ``O2`` chooses the order of
dims in memory and groups ops into kernels; a convolution may sum in another order. ``O3`` also puts composites back; ``trn1``,
``trn2`` and ``trn3``, which are for the hardware, join products as well. Both may round otherwise than the program does.
"""

_SIMPLIFY = "inline,func(canonicalize,fold_constants,canonicalize,cse,dce)"
_FOR_HARDWARE = f"{_SIMPLIFY},func(raise_composites,merge_matmuls,hoist,sink,canonicalize,cse,dce)"


def _kernels(fuse: str = "fuse") -> str:
    return f"func(layout{{partition=false}},cse,dce,{fuse},layout{{order=false}})"


PIPELINES = {
    "O0": "",
    "O1": _SIMPLIFY,
    "O2": f"{_SIMPLIFY},{_kernels()}",
    "O3": f"{_SIMPLIFY},func(raise_composites,cse,dce),{_kernels()}",
    **{name: f"{_FOR_HARDWARE},{_kernels(f'fuse{{target={name}}}')}" for name in ("trn1", "trn2", "trn3")},
}
