"""Gather, scatter, sort and order statistics: repeated, broadcast and empty indices, starts out of range."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy
import pytest
import torch
from torch.export import Dim

from tests.integration.bug_cases.judge import check, check_jax, each, same, torch_programs

ZEROS = torch.zeros(2)
TARGETS = torch.tensor([0, 0, 1, 0])
VALUES = torch.tensor([1.0, 2, 3, 4])
ROWS = torch.arange(12.0).view(4, 3) - 5
WIDE = torch.tensor([[0, 0, 0], [0, 0, 0], [1, 1, 1], [0, 0, 0]])
EMPTY = torch.empty(0, dtype=torch.int64)


def _rows(index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return index.view(-1, *[1] * (x.dim() - 1)).expand_as(x)


# seen in torch-spyre/torch-spyre#3638: garbage where several rows go to one target
@pytest.mark.parametrize(("acc", "x"), [(ZEROS, VALUES), (torch.zeros(2, 3), ROWS)], ids=["vector", "rows"])
def test_every_contribution_to_a_repeated_target_counts(acc: torch.Tensor, x: torch.Tensor) -> None:
    spellings = each(
        lambda acc, index, x: acc.clone().index_add_(0, index, x),
        lambda acc, index, x: acc.index_add(0, index, x, alpha=2),
        lambda acc, index, x: acc.scatter_add(0, _rows(index, x), x),
        lambda acc, index, x: acc.index_put((index,), x, accumulate=True),
        lambda acc, index, x: acc.scatter_reduce(0, _rows(index, x), x, "sum"),
        lambda acc, index, x: acc.scatter_reduce(0, _rows(index, x), x, "mean"),
        lambda acc, index, x: acc.scatter_reduce(0, _rows(index, x), x, "amax", include_self=False),
    )
    check(spellings, acc, TARGETS, x)


def test_repeated_targets_by_hand() -> None:
    check(lambda acc, index, x: acc.index_add(0, index, x), ZEROS, TARGETS, VALUES, want=torch.tensor([7.0, 3]))
    scatter = lambda acc, index, x: acc.at[index].add(x)  # noqa: E731
    check_jax(scatter, ZEROS.numpy(), TARGETS.numpy(), VALUES.numpy(), want=numpy.float32([7, 3]))


# seen in llvm/torch-mlir#3433
@pytest.mark.parametrize("accumulate", [False, True])
def test_values_of_an_index_put_broadcast(accumulate: bool) -> None:
    def put(x: torch.Tensor, where: tuple[torch.Tensor | None, ...], values: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.index_put(x, where, values, accumulate)

    spellings = each(
        lambda x, i, j: put(x, (i,), torch.tensor([5.0, 6, 7])),
        lambda x, i, j: put(x, (i, j), torch.tensor(7.0)),
        lambda x, i, j: put(x, (None, i), torch.tensor([[5.0], [6], [7]])),
        lambda x, i, j: put(x, (torch.stack([i, j]),), torch.tensor([1.0, 2, 3])),
        lambda x, i, j: put(x, (x > 9,), torch.tensor(3.0)),
    )
    check(spellings, torch.arange(9.0).view(3, 3), torch.tensor([0, 2]), torch.tensor([1, 1]))


def test_index_put_by_hand() -> None:
    rows, cols = torch.tensor([0, 2]), torch.tensor([1, 1])
    want = torch.tensor([[5.0, 6], [0, 0], [5, 6]])
    check(lambda x, i, v: x.index_put((i,), v), torch.zeros(3, 2), rows, torch.tensor([5.0, 6]), want=want)
    want = torch.tensor([[0.0, 7, 0], [0, 0, 0], [0, 7, 0]])
    check(lambda x, i, j: x.index_put((i, j), torch.tensor(7.0)), torch.zeros(3, 3), rows, cols, want=want)


# seen in intel/intel-extension-for-pytorch#682: the fresh result was left as it was allocated
def test_an_empty_index_changes_nothing() -> None:
    spellings = each(
        lambda x, i: x.scatter(0, i, torch.empty(0)),
        lambda x, i: x.scatter_add(0, i, torch.empty(0)),
        lambda x, i: x.scatter(0, i, 1.0),
        lambda x, i: x.index_add(0, i, torch.empty(0)),
        lambda x, i: x.index_copy(0, i, torch.empty(0)),
        lambda x, i: x.index_fill(0, i, 1.0),
        lambda x, i: x.index_put((i,), torch.tensor(1.0)),
        lambda x, i: x.gather(0, i),
        lambda x, i: x[i],
    )
    check(spellings, VALUES, EMPTY)


# seen in pytorch/pytorch#186146
def test_masked_scatter_consumes_its_source_over_the_broadcast_mask() -> None:
    where = torch.tensor([[[False], [True], [False], [True]]])
    source = torch.arange(1.0, 7).view(2, 3)
    want = torch.tensor([[[0.0, 0, 0], [1, 2, 3], [0, 0, 0], [4, 5, 6]]])
    check(lambda x, m, s: x.masked_scatter(m, s), torch.zeros(1, 4, 3), where, source, want=want)


def _slice_of_slice(x, i, j):
    return jax.lax.dynamic_slice(jax.lax.dynamic_slice(x, (i,), (4,)), (j,), (1,))


# seen in jax-ml/jax#40849; plain JAX gives 9 and 8
@pytest.mark.parametrize(("first", "second"), [(9, 0), (3, 5), (-1, 3)])
def test_each_start_of_nested_slices_is_clamped_alone(first: int, second: int) -> None:
    outer = min(max(first if first >= 0 else first + 10, 0), 6)
    inner = min(max(second, 0), 3)
    want = numpy.arange(10.0, dtype=numpy.float32)[[outer + inner]]
    check_jax(_slice_of_slice, numpy.arange(10, dtype=numpy.float32), numpy.int32(first), numpy.int32(second), want=want)
    check_jax(lambda x: _slice_of_slice(x, first, second), numpy.arange(10, dtype=numpy.float32), want=want)


# seen in jax-ml/jax#16326: the data came out transposed
def test_a_column_updated_from_its_own_old_value() -> None:
    x = numpy.float32([[1, 2], [3, 4]])
    want = numpy.float32([[0.1, 2], [0.3, 4]])
    check_jax(lambda x, r: x.at[:, 0].set(x[:, 0] / r), x, numpy.float32(10), want=want)

    def update(x: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        x[:, 0] = x[:, 0] / r
        return x

    check(update, torch.from_numpy(x), torch.tensor(10.0), want=torch.from_numpy(want))


# seen in llvm/torch-mlir#4477
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_lookup_of_no_ids(dynamic: bool) -> None:
    ids, table = torch.empty(2, 0, dtype=torch.int64), torch.arange(15.0).view(5, 3)
    lookup = torch.nn.functional.embedding
    if not dynamic:
        check(lookup, ids, table, want=torch.empty(2, 0, 3))
        return
    sizes = {"dynamic_shapes": ({1: Dim("n", min=0, max=8)}, None)}
    for run in torch_programs(lambda i, t: lookup(i, t), torch.tensor([[1, 2, 3], [4, 0, 1]]), table, **sizes):
        same(run(ids, table), torch.empty(2, 0, 3))
        same(run(torch.tensor([[4], [1]]), table), table[torch.tensor([[4], [1]])])


# seen in pytorch/pytorch#183885: wrong once the other dim passes 2^22; the kind of it is a sort along a dim with far strides
@pytest.mark.speed
def test_sort_along_the_first_dim_of_a_wide_tensor() -> None:
    x = torch.randn(3, 2**22 + 1, generator=torch.Generator().manual_seed(0))
    least, middle, most = torch_programs(lambda x: x.gather(0, x.argsort(0)), x)[0](x)
    assert torch.equal(least, x.amin(0)) and torch.equal(most, x.amax(0))
    assert bool(((least <= middle) & (middle <= most)).all())


def test_sort_along_the_first_dim() -> None:
    x = torch.randn(3, 2**12 + 1, generator=torch.Generator().manual_seed(0))
    check(lambda x: x.gather(0, x.argsort(0)), x, want=x.sort(0).values)


# seen in pytorch/pytorch#101878: the middle row as stored
def test_quantile_sorts_each_column() -> None:
    x = torch.tensor([[3.0, 1], [1, 2], [2, 9]])
    ways = ["nearest", "linear", "higher"]
    spellings = each(*(lambda x, how=how: torch.quantile(x, 0.5, dim=0, interpolation=how) for how in ways))
    check(spellings, x, want=[torch.tensor([2.0, 2])] * 3)
    check(lambda x: torch.quantile(x, torch.tensor([0.1, 0.9]), dim=1, keepdim=True), x)
    check_jax(lambda x: jnp.quantile(x, 0.5, axis=0, method="nearest"), x.numpy(), want=numpy.float32([2, 2]))


def test_order_statistics_of_unsorted_columns() -> None:
    x = torch.tensor([[3.0, 1], [1, 2], [2, 9], [2, 2]])
    check(lambda x: (x.median(0).values, x.kthvalue(2, 0).values, x.nanmedian(0).values, x.topk(2, 0, largest=False).values), x)
