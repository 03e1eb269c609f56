"""The named pipelines. Each name can stand in a pipeline's text, and ``neuron-opt -O2`` runs ``O2``.

None of them changes a program's precision: ``precision`` must be asked for.
"""

_SIMPLIFY = "inline,func(canonicalize,fold_constants,canonicalize,cse,dce)"

PIPELINES = {
    "O0": "",
    "O1": _SIMPLIFY,
    "O2": f"{_SIMPLIFY},func(fuse)",
    "O3": f"{_SIMPLIFY},func(layout{{partition=false}},cse,dce,fuse,layout{{channels-last=false}})",
}
