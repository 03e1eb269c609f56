"""State between calls: buffers, caches, decode loops, donated inputs."""

from __future__ import annotations

import copy

import jax
import numpy
import torch
from torch import nn
from torch.export import Dim

import neuron_ir
from tests.integration.bug_cases.judge import same, same_arrays, torch_programs


class Cache(nn.Module):
    """A buffer that each call writes at one place, in place or by a functional update."""

    def __init__(self, functional: bool) -> None:
        super().__init__()
        self.functional = functional
        self.register_buffer("c", torch.zeros(4))

    def forward(self, p: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if self.functional:
            self.c = self.c.index_copy(0, p, v)
        else:
            self.c[p] = v
        return self.c


# seen in iree-org/iree-turbine#85 (buffers taken for constants) and tenstorrent/tt-xla#4631 (the functional style)
def test_a_cache_holds_the_writes_of_all_calls() -> None:
    for functional in (False, True):
        model = Cache(functional)
        for run in torch_programs(model, torch.tensor([1]), torch.tensor([5.0])):
            same(run(torch.tensor([1]), torch.tensor([5.0])), torch.tensor([0.0, 5, 0, 0]))
            same(run(torch.tensor([3]), torch.tensor([7.0])), torch.tensor([0.0, 5, 0, 7]))
            same(torch.from_numpy(run.state["c"]), torch.tensor([0.0, 5, 0, 7]))
        same(model.c, torch.zeros(4))


def test_two_programs_of_one_module_share_no_state() -> None:
    module = neuron_ir.from_torch(Cache(False), (torch.tensor([1]), torch.tensor([5.0])))
    first, second = neuron_ir.compile(module), neuron_ir.compile(module)
    first(torch.tensor([0]), torch.tensor([3.0]))
    same(second(torch.tensor([2]), torch.tensor([4.0])), torch.tensor([0.0, 0, 4, 0]))


def test_a_result_keeps_its_values_when_the_state_moves_on() -> None:
    run = neuron_ir.compile(neuron_ir.from_torch(Cache(False), (torch.tensor([1]), torch.tensor([5.0]))))
    kept = run(torch.tensor([1]), torch.tensor([5.0]))
    run(torch.tensor([1]), torch.tensor([6.0]))
    same(kept, torch.tensor([0.0, 5, 0, 0]))
    kept.zero_()
    same(run(torch.tensor([2]), torch.tensor([1.0])), torch.tensor([0.0, 6, 1, 0]))


class Decoder(nn.Module):
    """One attention layer over tokens; with a cache, ``forward`` takes one token and its place."""

    def __init__(self, length: int = 12, width: int = 8, tokens: int = 11) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.qkv, self.head = nn.Linear(width, 3 * width), nn.Linear(width, tokens)
        self.register_buffer("k", torch.zeros(1, length, width), persistent=False)
        self.register_buffer("v", torch.zeros(1, length, width), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids) + self.place(torch.arange(ids.shape[1]))
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.head(x + nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))[:, -1].argmax(-1)


class CachedDecoder(Decoder):
    def forward(self, ids: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids) + self.place(at)
        q, k, v = self.qkv(x).chunk(3, -1)
        self.k.index_copy_(1, at, k)
        self.v.index_copy_(1, at, v)
        mask = (torch.arange(self.k.shape[1]) <= at).view(1, 1, -1)
        return self.head(x + nn.functional.scaled_dot_product_attention(q, self.k, self.v, attn_mask=mask))[:, -1].argmax(-1)


def _greedy(model: nn.Module, prompt: list[int], steps: int) -> list[int]:
    ids = list(prompt)
    for _ in range(steps):
        ids.append(int(model(torch.tensor([ids]))))
    return ids


# seen in aws-neuron/transformers-neuronx#30: right up to one bucket's length, repeats after
def test_greedy_decoding_with_a_cache_gives_the_same_tokens_at_every_prompt_length() -> None:
    torch.manual_seed(3)
    plain = Decoder().eval().requires_grad_(False)
    cached = CachedDecoder().eval().requires_grad_(False)
    cached.load_state_dict(plain.state_dict())
    for run in torch_programs(cached, torch.tensor([[1]]), torch.tensor([0])):
        for length in (1, 7, 8, 9):
            prompt = [(3 * i + length) % 11 for i in range(length)]
            want, got = _greedy(plain, prompt, 12 - length), list(prompt)
            for at in range(11):
                token = int(run(torch.tensor([[got[at]]]), torch.tensor([at])))
                if at + 1 >= len(got):
                    got.append(token)
            assert got[:12] == want


def test_one_program_of_a_symbolic_length_gives_the_same_tokens() -> None:
    torch.manual_seed(3)
    model = Decoder().eval().requires_grad_(False)
    sizes = {"dynamic_shapes": {"ids": {1: Dim("s", min=1, max=12)}}}
    (run, _) = torch_programs(model, torch.zeros(1, 5, dtype=torch.int64), **sizes)
    for length in (1, 9):
        ids = torch.arange(length).view(1, -1) % 11
        same(run(ids), model(ids))


# seen in jax-ml/jax#39625: a slot of the results showed a state's value, by the order of the outputs
def test_donated_state_beside_fresh_results() -> None:
    def fresh_first(state, v):
        y = v - v
        return (y,) * len(state), state

    def state_first(state, v):
        return fresh_first(state, v)[::-1]

    for function in (fresh_first, state_first):
        for count in (3, 5):
            state = [numpy.float32(i + 1) for i in range(count)]
            with jax.enable_x64(True):
                module = neuron_ir.from_jax(jax.jit(function, donate_argnums=0), state, numpy.float32(9))
            run = neuron_ir.compile(module)
            zeros = [numpy.float32(0)] * count
            want = [*zeros, *state] if function is fresh_first else [*state, *zeros]
            for _ in range(2):
                same_arrays(jax.tree.leaves(run(*state, numpy.float32(9))), want)


# seen in pytorch/xla#7585 and openxla/xla#22604: a donated input's mark went over to the result; a second use crashed
def test_results_and_inputs_stay_readable_after_donation() -> None:
    step = neuron_ir.compile(neuron_ir.from_jax(jax.jit(lambda x: x + 1, donate_argnums=0), numpy.zeros(3, numpy.float32)))
    twice = neuron_ir.compile(neuron_ir.from_jax(lambda x: x * 2, numpy.zeros(3, numpy.float32)))
    x = numpy.float32([1, 2, 3])
    first = step(x)
    same_arrays(twice(first), numpy.float32([4, 6, 8]))
    same_arrays([first, x, step(x), step(first)], [x + 1, numpy.float32([1, 2, 3]), x + 1, x + 2])


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros((), dtype=torch.int64))
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n += 1
        return self.norm(x) * self.n


def test_counters_and_running_statistics_follow_eager() -> None:
    eager = Counter().train()
    x = torch.arange(12.0).view(4, 3)
    for run in torch_programs(copy.deepcopy(eager), x):
        model = copy.deepcopy(eager)
        for step in range(3):
            same(run(x + step), model(x + step))
        state = {name: torch.from_numpy(value) for name, value in run.state.items()}
        same(state, dict(model.named_buffers()))
