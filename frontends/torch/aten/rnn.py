"""Recurrent layers: the inputs' products for all steps at once, then a scan over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from neuron_ir.builder import Builder
from neuron_ir.core import Value
from neuron_ir.frontends.torch.lowering import Context, lowers
from neuron_ir.types import TensorType

# One step: builder, input's part of the gates, states, the cell -> new states (the first is the output).
Step = Callable[[Builder, Value, Sequence[Value], "Cell"], list[Value]]


@dataclass(frozen=True)
class Cell:
    """Weights of one layer in one direction; biases may be absent, ``w_hr`` projects the output of an LSTM."""

    w_ih: Value
    w_hh: Value
    b_ih: Value | None = None
    b_hh: Value | None = None
    w_hr: Value | None = None


def _parts(b: Builder, x: Value, n: int) -> list[Value]:
    """``x`` cut into ``n`` equal parts along the last dim."""
    *lead, width = x.shape
    size = width // n
    return [
        b.slice(x, start_indices=[*(0 for _ in lead), i * size], limit_indices=[*lead, (i + 1) * size]) for i in range(n)
    ]  # fmt: skip


def _lstm_step(b: Builder, x: Value, states: Sequence[Value], cell: Cell) -> list[Value]:
    h, state = states
    i, f, g, o = _parts(b, b.add(x, b.linear(h, cell.w_hh, cell.b_hh)), 4)
    state = b.add(b.multiply(b.logistic(f), state), b.multiply(b.logistic(i), b.tanh(g)))
    h = b.multiply(b.logistic(o), b.tanh(state))
    return [h if cell.w_hr is None else b.linear(h, cell.w_hr, None), state]


def _gru_step(b: Builder, x: Value, states: Sequence[Value], cell: Cell) -> list[Value]:
    (h,) = states
    xr, xz, xn = _parts(b, x, 3)
    hr, hz, hn = _parts(b, b.linear(h, cell.w_hh, cell.b_hh), 3)
    r, z = b.logistic(b.add(xr, hr)), b.logistic(b.add(xz, hz))
    n = b.tanh(b.add(xn, b.multiply(r, hn)))
    return [b.add(n, b.multiply(z, b.subtract(h, n)))]


def _plain_step(activation: str) -> Step:
    def step(b: Builder, x: Value, states: Sequence[Value], cell: Cell) -> list[Value]:
        return [b.make(f"neuron.{activation}", b.add(x, b.linear(states[0], cell.w_hh, cell.b_hh)))]

    return step


@lowers("lstm.input")
def lstm(
    c: Context, x: Value, states: Sequence[Value], weights: Sequence[Value], has_biases: bool, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Value, ...]:  # fmt: skip
    layers = _Layers(c, _lstm_step, weights, has_biases, num_layers, bidirectional)
    layers.check(x, dropout, train, batch_first)
    return layers.run(x, states, batch_first)


@lowers("gru.input", "rnn_tanh.input", "rnn_relu.input")
def recurrent(
    c: Context, x: Value, state: Value, weights: Sequence[Value], has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> tuple[Value, ...]:  # fmt: skip
    name = str(c.node.target)
    step = _gru_step if "gru" in name else _plain_step("tanh" if "tanh" in name else "relu")
    layers = _Layers(c, step, weights, has_biases, num_layers, bidirectional)
    layers.check(x, dropout, train, batch_first)
    return layers.run(x, [state], batch_first)


class _Layers:
    """A stack of layers, each in one or both directions."""

    def __init__(self, c: Context, step: Step, weights: Sequence[Value], biases: bool, count: int, both: bool):
        self.c, self.step, self.count, self.directions = c, step, count, 2 if both else 1
        each = len(weights) // (count * self.directions)
        groups = [weights[i : i + each] for i in range(0, len(weights), each)]
        self.cells = [
            Cell(g[0], g[1], *(g[2:4] if biases else (None, None)), *(g[-1:] if each in (3, 5) else ())) for g in groups
        ]  # fmt: skip

    def check(self, x: Value, dropout: float, train: bool, batch_first: bool) -> None:
        if dropout and train and self.count > 1:
            raise self.c.unsupported(f"dropout = {dropout} between layers in training")
        if not isinstance(x.shape[1 if batch_first and len(x.shape) == 3 else 0], int):
            raise self.c.unsupported("a symbolic number of steps")

    def run(self, x: Value, states: Sequence[Value], batch_first: bool) -> tuple[Value, ...]:
        """``x`` ``[time, batch, features]`` (or batch first, or without a batch); the output and each last state."""
        c, b = self.c, self.c.b
        batched = len(x.shape) == 3
        if not batched:
            x, states = c.reshape(x, (x.shape[0], 1, x.shape[1])), [c.reshape(s, (s.shape[0], 1, s.shape[1])) for s in states]
        elif batch_first:
            x = b.transpose(x, permutation=(1, 0, 2))
        last: list[list[Value]] = [[] for _ in states]
        for layer in range(self.count):
            outputs = []
            for direction in range(self.directions):
                at = layer * self.directions + direction
                y, final = self.layer(x, [self.row(s, at) for s in states], self.cells[at], direction == 1)
                outputs.append(y)
                for collected, value in zip(last, final, strict=True):
                    collected.append(c.reshape(value, (1, *value.shape)))
            x = outputs[0] if len(outputs) == 1 else b.concatenate(*outputs, dimension=2)
        if batched and batch_first:
            x = b.transpose(x, permutation=(1, 0, 2))
        ends = [v[0] if len(v) == 1 else b.concatenate(*v, dimension=0) for v in last]
        return tuple(c.reshape(v, t.shape) for v, t in zip((x, *ends), c.outs, strict=True))

    def row(self, states: Value, at: int) -> Value:
        """One layer's state."""
        n, *rest = states.shape
        if n == 1:
            return self.c.reshape(states, rest)
        cut = self.c.b.slice(states, start_indices=[at, 0, 0], limit_indices=[at + 1, *rest])
        return self.c.reshape(cut, rest)

    def layer(self, x: Value, states: list[Value], cell: Cell, reverse: bool) -> tuple[Value, list[Value]]:
        """One layer in one direction: the outputs of all steps, and the last states."""
        projected = self.c.b.linear(x, cell.w_ih, cell.b_ih)
        n = len(states)

        def body(b: Builder, *values: Value) -> list[Value]:
            new = self.step(b, values[n], values[:n], cell)
            return [*new, new[0]]

        *final, y = self.c.b.scan(*states, projected, num_carry=n, length=x.shape[0], reverse=reverse, body=body)
        assert isinstance(y.type, TensorType)
        return y, final
