"""Calls by position with torch tensors: the second goes the direct way, and leaves it where it must."""

from __future__ import annotations

import pytest
import torch

import neuron_ir
from neuron_ir.backends.jax_cpu.direct import DirectCall

TEXT = """
func @main(%x: tensor<2x3xf32>, %b: tensor<2x3xbf16>, %z: tensor<2xc64>, %s: tensor<f8e5m2>, %e: tensor<0x3xf32>)
    -> (tensor<3x2xf32>, tensor<2x3xbf16>, tensor<2xc64>, tensor<f8e5m2>, tensor<0x3xf32>, tensor<bool>) {
  %t = neuron.transpose(%x) {permutation = [1, 0]} : tensor<3x2xf32>
  %d = neuron.add(%b, %b) : tensor<2x3xbf16>
  %w = neuron.multiply(%z, %z) : tensor<2xc64>
  %y = neuron.constant() {value = dense<true>} : tensor<bool>
  func.return(%t, %d, %w, %s, %e, %y)
}
"""


def test_every_kind_of_tensor_takes_the_direct_way(monkeypatch: pytest.MonkeyPatch) -> None:
    program = neuron_ir.compile(neuron_ir.parse(TEXT))
    direct: list[bool] = []
    before = DirectCall.__call__

    def watched(self: DirectCall, tensors: list[torch.Tensor]) -> list[torch.Tensor] | None:
        found = before(self, tensors)
        direct.append(found is not None)
        return found

    monkeypatch.setattr(DirectCall, "__call__", watched)
    x = torch.arange(6.0).reshape(2, 3)
    z = torch.tensor([1 + 2j, 3j])
    rest = [x.bfloat16(), z, torch.tensor(2.0).to(torch.float8_e5m2), torch.zeros(0, 3)]

    def check(x: torch.Tensor, z: torch.Tensor) -> None:
        got = program.positional([x, rest[0], z, *rest[2:]])
        want = [x.detach().T, 2 * rest[0], z * z, rest[2], rest[3], torch.tensor(True)]
        assert [g.dtype for g in got] == [w.dtype for w in want]
        assert all(torch.equal(g.float() if g.dtype.itemsize == 1 else g, w.float() if w.dtype.itemsize == 1 else w)
                   for g, w in zip(got, want, strict=True))  # fmt: skip
        got[0].add_(1)  # results are memory of their own

    for _ in range(3):
        check(x, z)
    check(x.T.contiguous().T, z)  # strides are free
    check(torch.nn.Parameter(x + 1), z)
    assert direct == [True] * 4
    check(x, z.conj())  # a view whose elements are not what memory holds
    assert direct[4:] == [False]
    with pytest.raises(neuron_ir.IRError, match=r"input 'x' is tensor<2x3xf64>"):
        program.positional([x.double(), rest[0], z, *rest[2:]])


def test_a_symbolic_size_has_a_way_for_each_of_its_sizes() -> None:
    text = "func @main[N in 1..inf](%x: tensor<Nxf32>) -> tensor<Nxf32> { %y = neuron.add(%x, %x) : tensor<Nxf32> func.return(%y) }"
    program = neuron_ir.compile(neuron_ir.parse(text))
    for n in (3, 4, 3, 4):
        (got,) = program.positional([torch.arange(float(n))])
        assert torch.equal(got, 2 * torch.arange(float(n)))
    assert len(program._direct) == 2
