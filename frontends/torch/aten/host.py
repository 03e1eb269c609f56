"""Operations that nobody gave a lowering: torch runs them on the host, in this process and in the program's order.

The program calls them by a name, ``torch.ops.<library>.<name>.<overload>``, which has a meaning in a process that imported a
program with that operation; their other arguments are the call's configuration.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from neuron_ir.core import Value
from neuron_ir.diagnostics import fail, warn
from neuron_ir.dialects.neuron.custom import TARGETS, custom_target
from neuron_ir.dims import Dim
from neuron_ir.dtypes import I64
from neuron_ir.frontends.torch import _compat
from neuron_ir.frontends.torch.lowering import Context
from neuron_ir.types import TensorType
from neuron_ir.weights import to_numpy

# Libraries of torch's own, whose operations have rules here or are refused.
_BUILT_IN = frozenset(
    """
    aten prims prim quantized _quantized mkldnn mkl onednn sparse xnnpack c10d _c10d_functional _dtensor symm_mem rngprims inductor
    profiler export streams
""".split()
)
_KERNELS = ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd")


def host_call(c: Context, op: Any, args: Sequence[Any], options: dict[str, Any], written: Sequence[str] = ()) -> list[Value]:
    """The results of an operation that torch runs, then the new values of the arguments that it writes (by keyword in ``options``).

    Results are of the types that torch's fake tensors have. A size that the data decide is found by a call of its own.
    """
    if not any(_compat.get("has_kernel")(op.name(), key) for key in _KERNELS):
        reason = "no rule for this operation, and no implementation on the CPU; neuron_ir.register_lowering gives it one"
        raise fail("unsupported", f"{op}: {reason}", c.loc, c.operand_types())
    leaves = _results(c, op)
    fakes, numbers = [f for f in leaves if hasattr(f, "dtype")], [f for f in leaves if isinstance(f, bool | int | float)]
    values: list[Value] = []
    given = {"args": _encoded(c, list(args), values), "options": _encoded(c, dict(options), values)}
    call = {**given, "written": list(written), "numbers": numbers}
    types = [c.symbols.type_of(fake) for fake in fakes] + [options[name].type for name in written]
    warn(
        "host", f"{op} has no lowering: torch runs it on the host, whenever the program gets there", c.loc,
        ["neuron_ir.register_lowering gives it one"],
    )  # fmt: skip
    return _call(c, op, call, values, _sized(c, op, call, values, types))


def opaque(c: Context, op: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """An operation without a rule at a node of its own: what torch gives on the host, nested as torch nests it."""
    made = iter(host_call(c, op, args, options))
    return _compat.get("tree_map")(lambda leaf: next(made) if hasattr(leaf, "dtype") else leaf, c.node.meta.get("val"))


def is_opaque(op: Any) -> bool:
    """Whether an operation is a user's or another library's own, and changes none of its arguments."""
    own = isinstance(op, _compat.get("OpOverload")) and op.namespace not in _BUILT_IN
    return own and not op._schema.is_mutable


def _results(c: Context, op: Any) -> list[Any]:
    """torch's fake results of the operation, in one list."""
    val = c.node.meta.get("val")
    if str(c.node.target) != str(op) and isinstance(val, tuple | list):
        val = val[: len(op._schema.returns)]
    leaves = _compat.get("tree_leaves")(val)
    if not all(leaf is None or hasattr(leaf, "dtype") or isinstance(leaf, bool | int | float) for leaf in leaves):
        raise fail("unsupported", f"{op}: no rule for this operation, which gives numbers that depend on sizes or data", c.loc)
    return leaves


def _sized(c: Context, op: Any, call: dict[str, Any], values: list[Value], types: list[TensorType]) -> list[TensorType]:
    """The types, after sizes among them that only the data decide are found."""
    for i, type in enumerate(types):
        for axis, size in enumerate(type.shape):
            if isinstance(size, Dim) and size.symbols & c.symbols.open:
                if not size.is_symbol:
                    raise fail("unsupported", f"{op}: no rule, and a result {type} that has sizes of the data", c.loc)
                (found,) = _call(c, op, {**call, "size": [i, axis]}, values, [TensorType((), I64)])
                c.bind_size(found, size)
    return types


def _call(c: Context, op: Any, call: dict[str, Any], values: list[Value], types: list[TensorType]) -> list[Value]:
    name = f"torch.ops.{op}"
    if name not in TARGETS:
        custom_target(name, on_host=True)(_Host(op))
    made = c.b.custom_call(*values, call_target_name=name, backend_config=json.dumps(call), has_side_effect=True, out=tuple(types))
    return list(made) if isinstance(made, tuple | list) else [made]


def _encoded(c: Context, item: Any, values: list[Value]) -> Any:
    """An argument as JSON: tensors by their place among ``values``, torch's own constants by name."""
    if isinstance(item, Value):
        values.append(item)
        return {"tensor": len(values) - 1}
    if isinstance(item, tuple | list):
        return [_encoded(c, i, values) for i in item]
    if isinstance(item, dict):
        return {"entries": {key: _encoded(c, i, values) for key, i in item.items()}}
    if isinstance(item, Dim):
        values.append(c.size_as_value(item))
        return {"size": len(values) - 1}
    if item is None or isinstance(item, bool | int | float | str):
        return item
    if type(item).__module__ == "torch":
        return {"torch": str(item).removeprefix("torch."), "kind": type(item).__name__}
    raise c.unsupported(f"an argument of the type {type(item).__name__} of an operation that runs on the host")


def _decoded(item: Any, tensors: Sequence[Any]) -> Any:
    import torch

    if isinstance(item, list):
        return [_decoded(i, tensors) for i in item]
    if not isinstance(item, dict):
        return item
    if "entries" in item:
        return {key: _decoded(i, tensors) for key, i in item["entries"].items()}
    if "tensor" in item:
        return tensors[item["tensor"]]
    if "size" in item:
        return int(tensors[item["size"]])
    return torch.device(item["torch"]) if item["kind"] == "device" else getattr(torch, item["torch"])


class _Host:
    """The meaning of a call of one operation."""

    def __init__(self, op: Any):
        self.op = op

    def __call__(self, j: Any, operands: Sequence[Any], config: dict[str, Any], out: Sequence[TensorType]) -> Any:
        return j.host(lambda *arrays: self.run(arrays, config, out), out, *operands)

    def run(self, arrays: Sequence[Any], config: dict[str, Any], out: Sequence[TensorType]) -> list[Any]:
        import torch

        tensors = [_tensor(x) for x in arrays]
        args, options = _decoded(config["args"], tensors), _decoded(config["options"], tensors)
        with torch.no_grad():
            given = self.op(*args, **options)
        leaves = _compat.get("tree_leaves")(given)
        results = [r for r in leaves if isinstance(r, torch.Tensor)]
        numbers = [r for r in leaves if isinstance(r, bool | int | float)]
        if numbers != config["numbers"]:
            raise ValueError(f"it gives {numbers} where its fake implementation gives {config['numbers']}")
        results += [options[name] for name in config["written"]]
        if "size" in config:
            place, axis = config["size"]
            results = [torch.tensor(results[place].shape[axis])]
        made = [to_numpy(r.detach().contiguous()) for r in results]
        if len(made) != len(out):
            raise ValueError(f"it gives {len(made)} tensor(s) where its fake implementation gives {len(out)}")
        for array, type in zip(made, out, strict=True):
            if tuple(array.shape) != type.shape or array.dtype != type.dtype.numpy:
                raise ValueError(f"its result is {array.dtype}{list(array.shape)} where its fake implementation says {type}")
        return made


def _tensor(array: Any) -> Any:
    """A torch tensor with a copy of an array's elements."""
    import numpy
    import torch

    from neuron_ir.dtypes import dtype_of_numpy

    array = numpy.array(array)
    element = getattr(torch, dtype_of_numpy(array.dtype).numpy.name)
    flat = numpy.ascontiguousarray(array).reshape(-1)
    return torch.from_numpy(flat.view(numpy.uint8)).view(element).reshape(array.shape)
