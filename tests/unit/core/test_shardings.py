"""Meshes, shardings and groups of devices, read from text; expected values by hand."""

import pytest

from neuron_ir.diagnostics import IRError
from neuron_ir.shardings import Mesh, axes_of_groups, moves_along, read_mesh, read_sharding

MESH = Mesh((("x", 2), ("y", 3)))  # devices 0 1 2 / 3 4 5


def test_meshes_and_shardings_of_text():
    assert read_mesh('#sdy.mesh<["x"=2, "y"=3]>') == MESH
    assert read_mesh("#sdy.mesh<[], device_ids=[0]>").axes == ()
    sharding = read_sharding('#sdy.sharding<@mesh, [{"x", "y"}, {?}, {"z", ?}p1, {}], replicated={"w"}>')
    assert sharding.dims == (("x", "y"), (), ("z",), ())
    assert sharding.is_open == (False, True, True, False)
    assert read_sharding('#sdy.sharding<@mesh, [{"y"}, {"x"}]>').local_shape((6, 8), MESH, ["y"]) == (2, 8)


@pytest.mark.parametrize(
    "text", ['#sdy.sharding<@m, [{"x":(1)2}]>', '#sdy.sharding<@m, [{}], unreduced={"x"}>', "{devices=[2,1]0,1}"], ids=str
)
def test_shardings_that_are_refused(text):
    with pytest.raises(IRError, match="not supported"):
        read_sharding(text)


def test_a_mesh_in_another_order_is_refused():
    with pytest.raises(IRError, match="another order"):
        read_mesh('#sdy.mesh<["x"=2], device_ids=[1, 0]>')


@pytest.mark.parametrize(
    ("groups", "axes"),
    [
        ([[0, 3], [1, 4], [2, 5]], ("x",)),
        ([[0, 1, 2], [3, 4, 5]], ("y",)),
        ([[0, 1, 2, 3, 4, 5]], ("x", "y")),
        ([[0, 3, 1, 4, 2, 5]], ("y", "x")),
        ([], ("x", "y")),
        ([[0, 4], [1, 5], [2, 3]], None),
    ],
)
def test_groups_along_axes(groups, axes):
    assert axes_of_groups(groups, MESH) == axes


def test_moves_along_axes():
    assert moves_along([[0, 3], [1, 4], [2, 5]], MESH, ["x"]) == [(0, 1)]
    assert moves_along([[0, 5]], MESH, ["x", "y"]) == [(0, 5)]
    assert moves_along([], MESH, ["x"]) == []
    assert moves_along([[0, 4]], MESH, ["x"]) is None  # another row and column
    assert moves_along([[0, 3], [1, 4]], MESH, ["x"]) is None  # the third column does not move
