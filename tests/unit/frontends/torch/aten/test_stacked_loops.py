"""``while_loop_stack_output``: the values of each step of a loop, whose number the data decide."""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops.while_loop import while_loop_stack_output_op

import neuron_ir


class Stacked(torch.nn.Module):
    def forward(self, x: Any, stop: Any, by: Any) -> Any:
        def condition(x: Any, i: Any, stop: Any, by: Any) -> Any:
            return x.sum() < stop

        def body(x: Any, i: Any, stop: Any, by: Any) -> Any:
            return x * 2 + by, i + 1

        xs, counts = while_loop_stack_output_op(condition, body, (x, torch.zeros((), dtype=torch.int64)), (stop, by))
        return xs + 1, counts


def test_one_row_for_each_step() -> None:
    model, x, by = Stacked(), torch.ones(2, 3), torch.arange(3.0)
    run = neuron_ir.compile(neuron_ir.from_torch(model, (x, torch.tensor(50.0), by)))
    for stop in (50.0, 1000.0, 50.0, 0.0):  # the last one makes no step, and gives the start
        rows = run(x, torch.tensor(stop), by)
        torch.testing.assert_close(rows, model(x, torch.tensor(stop), by))
