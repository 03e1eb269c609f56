"""Random numbers from an explicit state: an argument of the program that it also updates.

The numbers are not torch's own: torch draws from a Mersenne twister on the CPU. Their distribution is the same.
"""

from __future__ import annotations

from typing import Any

from neuron_ir.core import Value
from neuron_ir.dtypes import BOOL, F32, F64, I64
from neuron_ir.frontends.torch.aten.convert import check_layout
from neuron_ir.frontends.torch.lowering import Context, lowers
from neuron_ir.types import TensorType


@lowers("dropout.default", "native_dropout.default")
def dropout(c: Context, x: Value, p: float, train: bool | None = True) -> Any:
    both = len(c.outs) > 1
    if train is False or p == 0:
        return (x, c.scalar(True, BOOL, x.shape)) if both else x
    y, mask, state = c.b.dropout(x, c.random_state(), p=float(p))
    c.advance(state)
    return (y, mask) if both else y


@lowers("feature_dropout.default")
def feature_dropout(c: Context, x: Value, p: float, train: bool) -> Value:
    """Whole channels dropped, by one draw for each image and channel."""
    if not train or p == 0:
        return x
    u = uniform(c, 0.0, 1.0, TensorType((*x.shape[:2], *(1,) * (len(x.shape) - 2)), F32))
    kept = c.broadcast(c.b.compare(u, c.scalar(p, F32, u.shape), direction="GE"), x.shape)
    scaled = c.b.multiply(x, c.scalar(1 / (1 - p) if p < 1 else 0.0, x.dtype, x.shape))
    return c.b.select(kept, scaled, c.scalar(0, x.dtype, x.shape))


@lowers("rand.default", "rand_like.default")
def rand(c: Context, *_args: Any, **options: Any) -> Value:
    check_layout(c, options.get("layout"))
    return uniform(c, 0.0, 1.0, c.out)


def uniform(c: Context, low: float, high: float, type: TensorType) -> Value:
    """Uniform floats in ``[low, high)``."""
    state = c.random_state()
    new, x = c.b.random_uniform(state, low=low, high=high, out=(state.type, type))
    c.advance(new)
    return x


def normal(c: Context, mean: float, std: float, type: TensorType) -> Value:
    """Normal floats."""
    state = c.random_state()
    new, x = c.b.random_normal(state, mean=mean, std=std, out=(state.type, type))
    c.advance(new)
    return x


@lowers("randn.default", "randn_like.default")
def randn(c: Context, *_args: Any, **options: Any) -> Value:
    check_layout(c, options.get("layout"))
    return normal(c, 0.0, 1.0, c.out)


@lowers("uniform.default")
def uniform_(c: Context, _x: Value, low: float = 0.0, high: float = 1.0, **_options: Any) -> Value:
    return uniform(c, float(low), float(high), c.out)


@lowers("normal.float_float")
def normal_of_numbers(c: Context, mean: float, std: float, _size: Any, **_options: Any) -> Value:
    return normal(c, float(mean), float(std), c.out)


@lowers("normal.Tensor_Tensor", "normal.Tensor_float", "normal.float_Tensor")
def normal_of_tensors(c: Context, mean: Any, std: Any = 1.0, **_options: Any) -> Value:
    drawn = normal(c, 0.0, 1.0, c.out)
    mean, std = c.spread(mean, std, dtype=c.out.dtype)
    return c.b.add(c.b.multiply(drawn, std), mean)


@lowers("normal_functional.default")
def normal_(c: Context, _x: Any, mean: float = 0.0, std: float = 1.0, *_rest: Any, **_options: Any) -> Value:
    return normal(c, float(mean), float(std), c.out)


@lowers("randint.default", "randint.low", "randint_like.default", "randint_like.low_dtype")
def randint(c: Context, *args: Any, **_options: Any) -> Value:
    bounds = [a for a in args if isinstance(a, int) and not isinstance(a, bool)]
    low, high = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    if not 0 < high - low <= 2**32:
        raise c.unsupported(f"the range {low}..{high - 1}")
    # 53 random bits scaled to the range: the most likely number is at most 1 + 2**-21 times as likely as the least
    u = uniform(c, 0.0, 1.0, TensorType(c.out.shape, F64))
    scaled = c.b.floor(c.b.multiply(u, c.scalar(float(high - low), F64, c.out.shape)))
    drawn = c.b.add(c.b.cast(scaled, out=TensorType(c.out.shape, I64)), c.scalar(low, I64, c.out.shape))
    return c.cast(drawn, c.out.dtype)


@lowers("bernoulli.default", "bernoulli.p")
def bernoulli(c: Context, x: Value, p: float | None = None, **_options: Any) -> Value:
    dtype = F64 if p is None and x.dtype is F64 else F32
    u = uniform(c, 0.0, 1.0, TensorType(c.out.shape, dtype))
    chance = c.cast(x, dtype) if p is None else c.scalar(p, dtype, c.out.shape)
    return c.cast(c.b.compare(u, chance, direction="LT"), c.out.dtype)


@lowers("exponential.default")
def exponential(c: Context, _x: Value, rate: float = 1.0, **_options: Any) -> Value:
    u = uniform(c, 0.0, 1.0, TensorType(c.out.shape, F64 if c.out.dtype is F64 else F32))
    drawn = c.b.negate(c.b.log_plus_one(c.b.negate(u)))
    return c.cast(c.b.divide(drawn, c.scalar(rate, drawn.dtype, drawn.shape)), c.out.dtype)


@lowers("randperm.default")
def randperm(c: Context, n: Any, **_options: Any) -> Value:
    keys = uniform(c, 0.0, 1.0, TensorType(c.out.shape, F64))
    return c.cast(c.b.argsort(keys, dimension=0), c.out.dtype)
