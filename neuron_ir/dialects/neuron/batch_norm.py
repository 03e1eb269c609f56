"""Batch normalisation in StableHLO's form: the feature dim is an attribute, the statistics are operands or results.

Floats narrower than f32 are computed in f32 throughout and rounded once.
"""

from __future__ import annotations

from typing import Any

from neuron_ir.opdef import FLOAT, Op, attr, op, operand
from neuron_ir.types import TensorType, same_shape

from .windows import accumulator_name


def _feature_type(self: Any) -> TensorType:
    """The type of one number per feature; an error where an operand does not fit."""
    x = self.operands[0].type
    if not 0 <= self.feature_index < x.rank:
        raise self.error("shape", f"feature_index = {self.feature_index} does not exist in {x}")
    features = TensorType((x.shape[self.feature_index],), x.dtype)
    for field, value in zip(self.spec.operands[1:], self.operands[1:], strict=True):
        wanted = x if field.name == "grad_output" else features
        if value.dtype is not x.dtype or not same_shape(value.shape, wanted.shape):
            raise self.error("shape", f"{field.name} must be {wanted}, not {value.type}")
    return features


class _Features:
    """Helpers on arrays: everything in the wide type, numbers per feature spread over the operand."""

    def __init__(self, j: Any, x: Any, feature_index: int):
        self.np, self.narrow, self.wide = j.np, x.dtype, accumulator_name(j, x)
        self.axes = tuple(i for i in range(x.ndim) if i != feature_index)
        self.shape = tuple(s if i == feature_index else 1 for i, s in enumerate(x.shape))
        self.x = x.astype(self.wide)

    def spread(self, v: Any) -> Any:
        return v.astype(self.wide).reshape(self.shape)

    def mean(self, v: Any) -> Any:
        return self.np.mean(v, self.axes)

    def sum(self, v: Any) -> Any:
        return self.np.sum(v, self.axes)

    def normalise(self, mean: Any, variance: Any, scale: Any, offset: Any, epsilon: float) -> Any:
        spread = self.spread
        centred = self.x - spread(mean)
        return (centred / self.np.sqrt(spread(variance) + epsilon) * spread(scale) + spread(offset)).astype(self.narrow)


@op("neuron.batch_norm_inference")
class BatchNormInference(Op):
    """``(x - mean) / sqrt(variance + epsilon) * scale + offset`` per feature, with given statistics."""

    x = operand(FLOAT)
    scale = operand(FLOAT)
    offset = operand(FLOAT)
    mean = operand(FLOAT)
    variance = operand(FLOAT)
    epsilon = attr(float)
    feature_index = attr(int)

    def infer(self):
        _feature_type(self)
        return self.x.type

    def jax(j, x, scale, offset, mean, variance, *, epsilon, feature_index):
        return _Features(j, x, feature_index).normalise(mean, variance, scale, offset, epsilon)


@op("neuron.batch_norm_training", traits=["reduction"])
class BatchNormTraining(Op):
    """Normalises each feature by its own mean and (biased) variance over all other dims; gives the value, mean and variance."""

    x = operand(FLOAT)
    scale = operand(FLOAT)
    offset = operand(FLOAT)
    epsilon = attr(float)
    feature_index = attr(int)

    def infer(self):
        features = _feature_type(self)
        return self.x.type, features, features

    def jax(j, x, scale, offset, *, epsilon, feature_index):
        f = _Features(j, x, feature_index)
        mean = f.mean(f.x)
        variance = f.mean((f.x - f.spread(mean)) ** 2)
        y = f.normalise(mean, variance, scale, offset, epsilon)
        return y, mean.astype(x.dtype), variance.astype(x.dtype)


@op("neuron.batch_norm_grad", traits=["reduction"])
class BatchNormGrad(Op):
    """Gradients of batch_norm_training for the operand, scale and offset, from the statistics and the gradient of its value."""

    x = operand(FLOAT)
    scale = operand(FLOAT)
    mean = operand(FLOAT)
    variance = operand(FLOAT)
    grad_output = operand(FLOAT)
    epsilon = attr(float)
    feature_index = attr(int)

    def infer(self):
        features = _feature_type(self)
        return self.x.type, features, features

    def jax(j, x, scale, mean, variance, grad_output, *, epsilon, feature_index):
        f = _Features(j, x, feature_index)
        g = grad_output.astype(f.wide)
        inverse = 1 / j.np.sqrt(f.spread(variance) + epsilon)
        normal = (f.x - f.spread(mean)) * inverse
        grad_scale, grad_offset = f.sum(g * normal), f.sum(g)
        count = x.size // max(1, x.shape[feature_index])
        pull = (f.spread(grad_offset) + normal * f.spread(grad_scale)) / max(1, count)
        grad_x = f.spread(scale) * inverse * (g - pull)
        return grad_x.astype(x.dtype), grad_scale.astype(x.dtype), grad_offset.astype(x.dtype)
