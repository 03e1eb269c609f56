"""Normalisations as torch defines them, softmax included. Computed in f32 for f16 and bf16, rounded once at the end."""

from __future__ import annotations

from neuron_ir.opdef import Op, attr, op, operand, optional
from neuron_ir.types import TensorType

from .broadcasting import COMPUTED, axis_in, need_shape
from .expression import Expr, count


def opened(b, x):
    """``x`` as an expression in the type it is computed in."""
    e = Expr(b, x)
    return e.cast(e.dtype.accumulator)


def _as_vector(e):
    """A scalar counts as one element, as in torch."""
    return e if e.rank else e.reshape((1,))


@op("neuron.softmax", aten=["_softmax.default", "softmax.int"], traits=["reduction"])
class Softmax(Op):
    """Softmax along one axis: ``exp(x - max) / sum(exp(x - max))``. A row of -inf only, or one with +inf or NaN, gives NaN."""

    x = operand(COMPUTED)
    axis = attr(int, -1)

    def infer(self):
        axis_in(self, self.axis, self.x.type.rank)
        return self.x.type

    def expand(b, x, *, axis):
        e = _as_vector(opened(b, x))
        axes = [axis % e.rank]
        p = (e - e.max(axes)).exp()
        return (p / p.sum(axes)).cast(x.dtype).reshape(x.shape).value


@op("neuron.log_softmax", aten=["_log_softmax.default", "log_softmax.int"], traits=["reduction"])
class LogSoftmax(Op):
    """Logarithm of softmax along one axis: ``x - max - log(sum(exp(x - max)))``."""

    x = operand(COMPUTED)
    axis = attr(int, -1)

    def infer(self):
        axis_in(self, self.axis, self.x.type.rank)
        return self.x.type

    def expand(b, x, *, axis):
        e = _as_vector(opened(b, x))
        axes = [axis % e.rank]
        d = e - e.max(axes)
        return (d - d.exp().sum(axes).log()).cast(x.dtype).reshape(x.shape).value


def _trailing(self):
    """The dims that are normalised, checked against ``trailing_dims``."""
    n, rank = self.trailing_dims, self.x.type.rank
    if not 1 <= n <= rank:
        raise self.error("shape", f"trailing_dims = {n} is not in 1..{rank}, the rank of {self.x.type}")
    return self.x.shape[rank - n :]


def _scaled(b, e, weight, bias):
    if weight is not None:
        e = e * Expr(b, weight).cast(e.dtype)
    return e if bias is None else e + Expr(b, bias).cast(e.dtype)


def _moments(e, axes):
    """Deviation from the mean, the mean, and the mean of the squared deviations: two passes, so nothing cancels."""
    mean = e.mean(axes)
    d = e - mean
    return d, mean, (d * d).mean(axes)


def _statistics_dtype(self, *parameters):
    """torch keeps statistics in the input's type, in f32 where a parameter is f32 beside a narrower input."""
    mixed = any(p is not None and p.dtype is not self.x.dtype for p in parameters)
    return self.x.dtype.accumulator if mixed else self.x.dtype


def _check_parameters(self, shape, **parameters):
    """Weights and the like have one shape and one element type: the input's, or f32 beside f16 and bf16."""
    given = {name: p for name, p in parameters.items() if p is not None}
    for name, p in given.items():
        need_shape(self, name, p, shape)
    dtypes = {p.dtype for p in given.values()}
    if len(dtypes) > 1 or not dtypes <= {self.x.dtype, self.x.dtype.accumulator}:
        types = ", ".join(f"{name} {p.dtype}" for name, p in given.items())
        raise self.error("type", f"{types} do not go with an input of {self.x.dtype}")


@op("neuron.layer_norm", aten=["native_layer_norm.default", "layer_norm.default"], traits=["reduction"])
class LayerNorm(Op):
    """Layer normalisation over the last ``trailing_dims`` dims: ``(x - mean) / sqrt(var + eps) * weight + bias``, biased
    variance.

    With ``stats`` also gives the mean and ``1 / sqrt(var + eps)``, with size 1 in the normalised dims, in the input's type (f32
    where the weight is f32).
    """

    x = operand(COMPUTED)
    weight = optional(COMPUTED)
    bias = optional(COMPUTED)
    eps = attr(float, 1e-5)
    trailing_dims = attr(int, 1)
    stats = attr(bool, False)

    def infer(self):
        shape = _trailing(self)
        _check_parameters(self, shape, weight=self.weight, bias=self.bias)
        if not self.stats:
            return self.x.type
        outer = (*self.x.shape[: self.x.type.rank - len(shape)], *(1,) * len(shape))
        stat = TensorType(outer, _statistics_dtype(self, self.weight, self.bias))
        return self.x.type, stat, stat

    def expand(b, x, weight, bias, *, eps, trailing_dims, stats, out):
        e = opened(b, x)
        d, mean, var = _moments(e, range(e.rank - trailing_dims, e.rank))
        rstd = (var + eps).rsqrt()
        y = _scaled(b, d * rstd, weight, bias).cast(x.dtype).value
        return (y, mean.cast(out[1].dtype).value, rstd.cast(out[2].dtype).value) if stats else y


@op("neuron.rms_norm", aten=["rms_norm.default", "_fused_rms_norm.default"], traits=["reduction"])
class RmsNorm(Op):
    """Root-mean-square normalisation over the last ``trailing_dims`` dims: ``x / sqrt(mean(x * x) + eps) * weight``.

    With ``stats`` also gives ``1 / sqrt(mean + eps)``, with size 1 in the normalised dims.
    """

    x = operand(COMPUTED)
    weight = optional(COMPUTED)
    eps = attr(float, 1e-6)
    trailing_dims = attr(int, 1)
    stats = attr(bool, False)

    def infer(self):
        shape = _trailing(self)
        _check_parameters(self, shape, weight=self.weight)
        if not self.stats:
            return self.x.type
        outer = (*self.x.shape[: self.x.type.rank - len(shape)], *(1,) * len(shape))
        return self.x.type, TensorType(outer, self.x.dtype.accumulator)

    def expand(b, x, weight, *, eps, trailing_dims, stats):
        e = opened(b, x)
        rstd = ((e * e).mean(range(e.rank - trailing_dims, e.rank)) + eps).rsqrt()
        y = _scaled(b, e * rstd, weight, None).cast(x.dtype).value
        return (y, rstd.value) if stats else y


def _channels(self):
    """The number of channels of ``[N, C, ...]``."""
    if self.x.type.rank < 2:
        raise self.error("shape", f"x must be [N, C, ...], but is {self.x.type}")
    return self.x.shape[1]


@op("neuron.group_norm", aten=["native_group_norm.default", "group_norm.default"], traits=["reduction"])
class GroupNorm(Op):
    """Normalisation of ``[N, C, ...]`` over each of ``groups`` groups of channels with all their positions, then per-channel
    scale.

    With ``stats`` also gives the mean and ``1 / sqrt(var + eps)`` of shape ``[N, groups]``.
    """

    x = operand(COMPUTED)
    weight = optional(COMPUTED)
    bias = optional(COMPUTED)
    groups = attr(int)
    eps = attr(float, 1e-5)
    stats = attr(bool, False)

    def infer(self):
        channels = _channels(self)
        if self.groups < 1 or (isinstance(channels, int) and channels % self.groups):
            raise self.error("shape", f"{channels} channels cannot be split into {self.groups} groups")
        _check_parameters(self, (channels,), weight=self.weight, bias=self.bias)
        if not self.stats:
            return self.x.type
        stat = TensorType((self.x.shape[0], self.groups), _statistics_dtype(self, self.weight, self.bias))
        return self.x.type, stat, stat

    def expand(b, x, weight, bias, *, groups, eps, stats, out):
        n, channels, *spatial = x.shape
        e = opened(b, x).reshape((n, groups, count((channels // groups, *spatial))))
        d, mean, var = _moments(e, [2])
        rstd = (var + eps).rsqrt()
        y = (d * rstd).reshape(x.shape)
        y = _per_channel(b, y, weight, bias).cast(x.dtype).value
        if not stats:
            return y
        return y, *(s.reshape((n, groups)).cast(t.dtype).value for s, t in zip((mean, rstd), out[1:], strict=True))


def _per_channel(b, e, weight, bias):
    """``e * weight + bias`` along dim 1."""
    if weight is not None:
        e = e * Expr(b, weight).cast(e.dtype).broadcast(e.shape, [1])
    return e if bias is None else e + Expr(b, bias).cast(e.dtype).broadcast(e.shape, [1])


@op(
    "neuron.batch_norm",
    aten=[
        "_native_batch_norm_legit_no_training.default",
        "_native_batch_norm_legit_functional.default",
        "native_batch_norm.default",
    ],
    traits=["reduction"],
)
class BatchNorm(Op):
    """Batch normalisation of ``[N, C, ...]`` per channel, in torch's form.

    Without ``train``: ``(x - running_mean) / sqrt(running_var + eps) * weight + bias``, one result. With ``train`` the batch's
    own mean and biased variance take their place, and the results are ``y``, the new running mean and variance where the old
    are given (``(1 - momentum) * old + momentum * batch``, unbiased variance), the batch's mean, and its ``1 / sqrt(var +
    eps)``.
    """

    x = operand(COMPUTED)
    weight = optional(COMPUTED)
    bias = optional(COMPUTED)
    running_mean = optional(COMPUTED)
    running_var = optional(COMPUTED)
    train = attr(bool, False)
    momentum = attr(float, 0.1)
    eps = attr(float, 1e-5)

    def infer(self):
        channels = _channels(self)
        if (self.running_mean is None) != (self.running_var is None):
            raise self.error("operand", "running_mean and running_var are given together or not at all")
        if not self.train and self.running_mean is None:
            raise self.error("operand", "running_mean and running_var are needed where train is false")
        if self.train and any(d == 0 for i, d in enumerate(self.x.shape) if i != 1):
            raise self.error("shape", f"{self.x.type} has no element per channel to take statistics of")
        _check_parameters(self, (channels,), weight=self.weight, bias=self.bias)
        _check_parameters(self, (channels,), running_mean=self.running_mean, running_var=self.running_var)
        if not self.train:
            return self.x.type
        saved = TensorType((channels,), _statistics_dtype(self, self.weight, self.bias, self.running_mean))
        running = [v.type for v in (self.running_mean, self.running_var) if v is not None]
        return self.x.type, *running, saved, saved

    def expand(b, x, weight, bias, running_mean, running_var, *, train, momentum, eps, out):
        e = opened(b, x)
        axes = [i for i in range(e.rank) if i != 1]
        if not train:
            mean, var = (Expr(b, v).cast(e.dtype) for v in (running_mean, running_var))
            y = (e - mean.broadcast(e.shape, [1])) * (var + eps).rsqrt().broadcast(e.shape, [1])
            return _per_channel(b, y, weight, bias).cast(x.dtype).value
        d, mean, var = _moments(e, axes)
        rstd = (var + eps).rsqrt()
        y = _per_channel(b, d * rstd, weight, bias).cast(x.dtype).value
        mean, var, rstd = (s.reshape((x.shape[1],)) for s in (mean, var, rstd))
        saved = [s.cast(out[-1].dtype).value for s in (mean, rstd)]
        if running_mean is None:
            return y, *saved
        n = count(x.shape[i] for i in axes)
        unbiased = var * (n / (n - 1) if n > 1 else float("nan"))
        new = [
            (Expr(b, old).cast(e.dtype) * (1 - momentum) + batch * momentum).cast(old.dtype).value
            for old, batch in ((running_mean, mean), (running_var, unbiased))
        ]
        return y, *new, *saved
