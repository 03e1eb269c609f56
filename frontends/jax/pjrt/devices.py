"""The client, its devices and memories, and all handles that are alive."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from neuron_ir import __version__
from neuron_ir.backends.base import open_host
from neuron_ir.diagnostics import fail
from neuron_ir.frontends.jax._compat import PLATFORM, TRIED
from neuron_ir.frontends.jax.pjrt.abi import VERSION
from neuron_ir.frontends.jax.pjrt.buffers import Buffer
from neuron_ir.frontends.jax.pjrt.cells import Cell
from neuron_ir.frontends.jax.pjrt.native import take_retired

__all__ = ["Client", "Device", "wanted_devices"]

NUM_DEVICES = "NEURON_IR_NUM_DEVICES"


class Device(Cell):
    """One NeuronCore of the reference accelerator, with one memory."""

    __slots__ = ("index", "memory", "ready", "description")

    def __init__(self, index: int, process: int, ready: Cell):
        self.index, self.ready = index, ready
        name = f"NeuronCore(id={index})"
        self.description = Cell(
            "DeviceDescription", is_static=True, id=index, process_index=process,
            device_kind="NeuronCore (reference)", debug_string=name, to_string=name,
        )  # fmt: skip
        label = f"HBM of {name}"
        self.memory = Cell(
            "Memory", is_static=True, id=index, kind="device", kind_id=1, debug_string=label, to_string=label
        )  # fmt: skip
        super().__init__(
            "Device", is_static=True, device_description=self.description.address, is_addressable=True, local_hardware_id=index,
            memories=[self.memory], memory=self.memory.address,
        )  # fmt: skip
        self.memory.set(devices=[self])


class Client(Cell):
    """What ``jax.devices("neuron")`` comes from: the host's devices as PJRT sees them, and the table of live handles."""

    __slots__ = ("by_address", "devices", "held", "host", "live")

    def __init__(self, num_devices: int):
        self.host = open_host("reference", num_devices)
        ready = Cell("Event", is_static=True, is_ready=True)
        self.devices = [Device(i, 0, ready) for i in range(num_devices)]
        self.by_address = {cell.address: d for d in self.devices for cell in (d, d.memory)}
        self.live: dict[int, Cell] = {}
        self.held: set[int] = set()
        version = _version(self.host)
        topology = Cell("Topology", is_static=True, platform_name=PLATFORM, platform_version=version)
        topology.set(descriptions=[d.description for d in self.devices])
        super().__init__(
            "Client", is_static=True, platform_name=PLATFORM, platform_version=version, process_index=0, topology=topology.address,
            devices=self.devices, addressable_devices=self.devices, addressable_memories=[d.memory for d in self.devices],
        )  # fmt: skip
        self.kept += [topology, ready]

    def add(self, cell: Cell) -> int:
        """Keep a handle until JAX destroys it; gives its address."""
        self.live[cell.address] = cell
        return cell.address

    def sweep(self) -> None:
        """Let go of the handles that JAX has destroyed since the last time."""
        retired = take_retired()
        if not retired and not self.held:
            return
        for address in (*self.held, *retired):
            cell = self.live[address]
            if isinstance(cell, Buffer) and cell.cell.references > 0:
                self.held.add(address)  # somebody outside still reads this memory
            else:
                self.held.discard(address)
                del self.live[address]

    def device_at(self, device: int | None, memory: int | None) -> Device:
        """The device that a handle of a device or of its memory stands for; the first where neither is given."""
        place = device or memory
        return self.by_address[place] if place else self.devices[0]


def _version(host: Any) -> str:
    """What the platform says of itself; JAX's persistent cache tells programs of different versions apart by this text."""
    digest = hashlib.sha256(host.versions().encode()).hexdigest()[:12]
    return (
        f"neuron-ir {__version__}, PJRT C API {'.'.join(map(str, VERSION))}, jaxlib {', '.join(f'{v}.x' for v in TRIED)}; {digest}"
    )


def wanted_devices() -> int:
    """How many devices the user asks for in the environment; raises :class:`IRError` for anything but 1 to 1024."""
    text = os.environ.get(NUM_DEVICES, "1")
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise fail("input", f"{NUM_DEVICES} is a number from 1 to 1024, not {text!r}")
    return int(text)
