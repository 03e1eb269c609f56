"""Random numbers from an explicit state: an argument of the program that it also updates.

The numbers are not torch's own: torch draws from a Mersenne twister on the CPU. Their distribution is the same.
"""

from __future__ import annotations

import math
from typing import Any

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.expression import Expr
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


def dropped(c: Context, x: Value, p: float) -> Value:
    """``x`` with elements dropped by chance ``p``."""
    y, _, state = c.b.dropout(x, c.random_state(), p=float(p))
    c.advance(state)
    return y


def _channels(c: Context, x: Value, p: float) -> Value:
    """One draw for each image and channel, spread over its elements: true where it is kept."""
    u = uniform(c, 0.0, 1.0, TensorType((*x.shape[:2], *(1,) * (len(x.shape) - 2)), F32))
    return c.broadcast(c.b.compare(u, c.scalar(p, F32, u.shape), direction="GE"), x.shape)


@lowers("feature_dropout.default")
def feature_dropout(c: Context, x: Value, p: float, train: bool) -> Value:
    """Whole channels dropped."""
    if not train or p == 0:
        return x
    scaled = c.b.multiply(x, c.scalar(1 / (1 - p) if p < 1 else 0.0, x.dtype, x.shape))
    return c.b.select(_channels(c, x, p), scaled, c.scalar(0, x.dtype, x.shape))


_SATURATION = 1.7580993408473766  # where SELU ends: its alpha times its scale (Klambauer et al. 2017)


@lowers("feature_alpha_dropout.default")
def feature_alpha_dropout(c: Context, x: Value, p: float, train: bool) -> Value:
    """Whole channels set to SELU's lower limit, then all scaled and shifted back to mean 0 and deviation 1."""
    if not train or p == 0:
        return x
    if p == 1:
        return c.b.multiply(x, c.scalar(0, x.dtype, x.shape))
    scale = ((_SATURATION**2 * p + 1) * (1 - p)) ** -0.5
    e, kept = Expr(c.b, x), Expr(c.b, _channels(c, x, p))
    shift = _SATURATION * scale * p
    return kept.where(e * scale + shift, e.lift(shift - _SATURATION * scale)).value


@lowers("rrelu_with_noise_functional.default")
def rrelu(
    c: Context, x: Value, noise: Value, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, generator: Any = None
) -> tuple[Value, Value]:  # fmt: skip
    """Elements up to 0 times a slope: one drawn for each while training, else the middle of the range."""
    e = Expr(c.b, x)
    if not training:
        slope = e.lift((float(lower) + float(upper)) / 2)
        return e.compare("LE", 0.0).where(e * slope, e).value, noise
    drawn = Expr(c.b, c.cast(uniform(c, float(lower), float(upper), TensorType(x.shape, F32)), x.dtype))
    slope = e.compare("LE", 0.0).where(drawn, 1.0)
    return (e * slope).value, c.cast(slope.value, noise.dtype)


@lowers("rand.default", "rand_like.default", "rand.generator", "rand_like.generator")
def rand(c: Context, *_args: Any, **options: Any) -> Value:
    check_layout(c, options.get("layout"))
    return uniform(c, 0.0, 1.0, c.out)


def uniform(c: Context, low: float, high: float, type: TensorType) -> Value:
    """Uniform floats in ``[low, high)``; of complex numbers both parts."""
    if type.dtype.is_complex:
        return c.b.complex(*(uniform(c, low, high, type.with_dtype(type.dtype.real)) for _ in range(2)))  # type: ignore[no-any-return]
    state = c.random_state()
    new, x = c.b.random_uniform(state, low=low, high=high, out=(state.type, type))
    c.advance(new)
    return x


def normal(c: Context, mean: float, std: float, type: TensorType) -> Value:
    """Normal floats; of complex numbers both parts have that mean and half of the variance, as in torch."""
    if type.dtype.is_complex:
        part = type.with_dtype(type.dtype.real)
        return c.b.complex(*(normal(c, mean, std * 0.5**0.5, part) for _ in range(2)))  # type: ignore[no-any-return]
    state = c.random_state()
    new, x = c.b.random_normal(state, mean=mean, std=std, out=(state.type, type))
    c.advance(new)
    return x


@lowers("randn.default", "randn_like.default", "randn.generator", "randn_like.generator")
def randn(c: Context, *_args: Any, **options: Any) -> Value:
    check_layout(c, options.get("layout"))
    return normal(c, 0.0, 1.0, c.out)


@lowers("uniform.default")
def uniform_(c: Context, _x: Value, low: float = 0.0, high: float = 1.0, **_options: Any) -> Value:
    if low > high:
        raise c.unsupported(f"numbers from {low} to {high}")
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


@lowers(
    "randint.default", "randint.low", "randint_like.default", "randint_like.low_dtype", "randint.generator",
    "randint.low_generator", "randint_like.generator", "randint_like.low_generator_dtype",
)  # fmt: skip
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


@lowers("bernoulli.default", "bernoulli.p", "bernoulli.Tensor")
def bernoulli(c: Context, x: Value, p: Any = None, **_options: Any) -> Value:
    p = x if p is None else p
    dtype = F64 if isinstance(p, Value) and p.dtype is F64 else F32
    u = uniform(c, 0.0, 1.0, TensorType(c.out.shape, dtype))
    chance = c.scalar(p, dtype, c.out.shape)
    if isinstance(p, Value):
        inside = Expr(c.b, chance).compare("GE", 0.0).both(Expr(c.b, chance).compare("LE", 1.0))
        c.require(inside.value, f"a chance in {p.type} lies outside 0 to 1")
    return c.cast(c.b.compare(u, chance, direction="LT"), c.out.dtype)


@lowers("exponential.default")
def exponential(c: Context, _x: Value, rate: float = 1.0, **_options: Any) -> Value:
    u = uniform(c, 0.0, 1.0, TensorType(c.out.shape, F64 if c.out.dtype is F64 else F32))
    drawn = c.b.negate(c.b.log_plus_one(c.b.negate(u)))
    return c.cast(c.b.divide(drawn, c.scalar(rate, drawn.dtype, drawn.shape)), c.out.dtype)


@lowers("geometric.default")
def geometric(c: Context, _x: Value, p: float, **_options: Any) -> Value:
    """The number of trials up to the first success."""
    u = Expr(c.b, uniform(c, 0.0, 1.0, TensorType(c.out.shape, F64)))
    failures = ((1.0 - u).log() / math.log1p(-p)).unary("floor") if p < 1 else u * 0.0
    return c.cast((failures + 1.0).value, c.out.dtype)


@lowers("randperm.default", "randperm.generator")
def randperm(c: Context, n: Any, **_options: Any) -> Value:
    keys = uniform(c, 0.0, 1.0, TensorType(c.out.shape, F64))
    return c.cast(c.b.argsort(keys, dimension=0), c.out.dtype)


@lowers("multinomial.default")
def multinomial(c: Context, weights: Value, count: Any, replacement: bool = False, **_options: Any) -> Value:
    """Places along the last dim, drawn with chances in proportion to their weights; a place of weight 0 comes last.

    Without replacement: the places of the largest ``weight / e`` for exponential e (Efraimidis and Spirakis 2006).
    """
    if not weights.dtype.is_float or not isinstance(count, int) or count < 1:
        raise c.unsupported(f"{count} draws by weights of {weights.dtype}")
    w, axis = Expr(c.b, c.cast(weights, F64)), len(weights.shape) - 1
    places = w.shape[axis]
    if isinstance(places, int) and places > 1 << 24:
        raise c.unsupported(f"draws from {places} places, more than torch takes")
    c.require(w.compare("GE", 0.0).both(w.compare("LT", math.inf)).value, f"a weight in {weights.type} is negative or not finite")
    c.require(w.sum((axis,), False).compare("GT", 0.0).value, f"weights in {weights.type} have no sum above 0")
    if not replacement:
        u = Expr(c.b, uniform(c, 0.0, 1.0, TensorType(w.shape, F64)))
        keys = w / (-((1.0 - u).log())).maximum(2.0**-60)
        return c.cast(c.b.top_k(keys.value, k=count, axis=axis)[1], c.out.dtype)
    upto = Expr(c.b, c.b.cumsum(w.value, axis=axis))
    total = w.sum((axis,), True)
    u = Expr(c.b, uniform(c, 0.0, 1.0, TensorType(c.out.shape, F64)))
    wide = (*c.out.shape, w.shape[axis])
    lead = tuple(range(axis))
    upto = upto.broadcast(wide, (*lead, axis + 1))
    at = (u * total.broadcast(u.shape)).broadcast(wide, (*lead, axis))
    passed = upto.compare("LE", at).both(upto.compare("LT", total.broadcast(wide, (*lead, axis))))
    return c.cast(passed.cast(I64).sum((axis + 1,), False).value, c.out.dtype)
