"""Random numbers from an explicit state: every op takes the state and gives the next one."""

from __future__ import annotations

from typing import Any

from neuron_ir.dtypes import BOOL, F32, U32, U64, DType, dtype
from neuron_ir.opdef import FLOAT, INT, REAL, Op, attr, op, operand
from neuron_ir.types import TensorType, compatible, same_shape

from .expression import Expr

ALGORITHMS = ("PHILOX", "THREE_FRY")
STATE = TensorType((2,), U64)

# --- the generators: functions of key and counter ---------------------------------------------------------------------

THREEFRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PHILOX_FACTORS, PHILOX_STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)


def threefry(j: Any, key: Any, x: Any) -> tuple[Any, Any]:
    """Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)."""
    key = [j.np.asarray(k) for k in key]
    keys = (key[0], key[1], key[0] ^ key[1] ^ j.np.uint32(0x1BD11BDA))
    a, b = x[0] + keys[0], x[1] + keys[1]
    for group in range(5):
        for distance in THREEFRY_ROTATIONS[group % 2]:
            a = a + b
            b = ((b << j.np.uint32(distance)) | (b >> j.np.uint32(32 - distance))) ^ a
        a = a + keys[(group + 1) % 3]
        b = b + keys[(group + 2) % 3] + j.np.uint32(group + 1)
    return a, b


def philox(j: Any, key: Any, x: Any) -> tuple[Any, Any, Any, Any]:
    """Philox-4x32 with 10 rounds (same paper)."""
    k0, k1 = (j.np.asarray(k) for k in key)
    a, b, c, d = x
    for _ in range(10):
        first = a.astype(j.np.uint64) * j.np.uint64(PHILOX_FACTORS[0])
        second = c.astype(j.np.uint64) * j.np.uint64(PHILOX_FACTORS[1])
        high0, low0 = (first >> j.np.uint64(32)).astype(j.np.uint32), first.astype(j.np.uint32)
        high1, low1 = (second >> j.np.uint64(32)).astype(j.np.uint32), second.astype(j.np.uint32)
        a, b, c, d = high1 ^ b ^ k0, low1, high0 ^ d ^ k1, low0
        k0, k1 = k0 + j.np.uint32(PHILOX_STEPS[0]), k1 + j.np.uint32(PHILOX_STEPS[1])
    return a, b, c, d


def words(j: Any, state: Any, count: int, algorithm: str) -> tuple[Any, Any]:
    """The next state and ``count`` words of 32 bits. ``state``: key and number of blocks drawn, both u64."""
    width = 4 if algorithm == "PHILOX" else 2
    blocks = -(-count // width)
    at = state[1] + j.lax.iota(j.np.uint64, blocks)
    low, high = at.astype(j.np.uint32), (at >> j.np.uint64(32)).astype(j.np.uint32)
    key = (state[0].astype(j.np.uint32), (state[0] >> j.np.uint64(32)).astype(j.np.uint32))
    zero = j.np.zeros_like(low)
    made = philox(j, key, (low, high, zero, zero)) if algorithm == "PHILOX" else threefry(j, key, (low, high))
    return j.np.stack([state[0], state[1] + j.np.uint64(blocks)]), j.np.stack(made, -1).reshape(-1)[:count]


# --- ops --------------------------------------------------------------------------------------------------------------


@op("neuron.threefry2x32", traits=["elementwise"])
class Threefry2x32(Op):
    """The block cipher behind JAX's default keys: two u32 words for each pair of u32 words, under two words of key.

    All four operands have one shape; Threefry-2x32 with 20 rounds.
    """

    key0 = operand(frozenset({U32}))
    key1 = operand(frozenset({U32}))
    x0 = operand(frozenset({U32}))
    x1 = operand(frozenset({U32}))

    def infer(self):
        return _words_of_one_shape(self, 2)

    def jax(j, key0, key1, x0, x1):
        return threefry(j, (key0, key1), (x0, x1))


@op("neuron.philox4x32", traits=["elementwise"])
class Philox4x32(Op):
    """Four u32 words for each four u32 words of counter, under two words of key. All six operands have one shape; 10 rounds."""

    key0 = operand(frozenset({U32}))
    key1 = operand(frozenset({U32}))
    x0 = operand(frozenset({U32}))
    x1 = operand(frozenset({U32}))
    x2 = operand(frozenset({U32}))
    x3 = operand(frozenset({U32}))

    def infer(self):
        return _words_of_one_shape(self, 4)

    def jax(j, key0, key1, x0, x1, x2, x3):
        return philox(j, (key0, key1), (x0, x1, x2, x3))


def _words_of_one_shape(self: Op, results: int) -> list[TensorType]:
    first = self.operands[0].type
    for v in self.operands[1:]:
        if not same_shape(v.shape, first.shape):
            raise self.error("shape", f"key and counter words must have one shape, not {first} and {v.type}")
    return [first] * results


def _bits_types(self: Op, like: frozenset[DType], what: str) -> tuple[TensorType, TensorType]:
    """State and result types of a draw whose result type is a free choice."""
    if len(self.results) != 2:
        raise self.error("type", f"gives the next state and the {what}: two result types are needed, not {len(self.results)}")
    state, drawn = (r.type for r in self.results)
    if not compatible(state, self.operands[0].type):
        raise self.error("type", f"the next state is {self.operands[0].type}, not {state}")
    if not isinstance(drawn, TensorType) or drawn.dtype not in like:
        raise self.error("type", f"{what} cannot be {drawn}")
    return state, drawn


def check_state(self: Any) -> None:
    if not compatible(self.state.type, STATE):
        raise self.error("operand", f"the state is key and counter, {STATE}, not {self.state.type}")


WORDS = frozenset(t for t in INT if t.bits >= 8)


@op("neuron.rng_bit_generator", traits=["random"])
class RngBitGenerator(Op):
    """The next state and random bits, as StableHLO defines them. The result types are a free choice: state, then integers.

    ``rng_algorithm``: ``DEFAULT`` (Philox here), ``THREE_FRY`` or ``PHILOX``. The state is u64[2] (key, counter) or u32[4].
    """

    state = operand(frozenset({U32, U64}))
    rng_algorithm = attr(str, "DEFAULT", choices=("DEFAULT", "THREE_FRY", "PHILOX"))

    def check(self):
        if self.state.type not in (STATE, TensorType((4,), U32)):
            raise self.error("operand", f"the state must be {STATE} or {TensorType((4,), U32)}, not {self.state.type}")
        _bits_types(self, WORDS, "bits")

    def jax(j, state, *, rng_algorithm, out):
        kind = j.np.dtype(f"uint{out[1].dtype.bits}")
        kinds = j.lax.RandomAlgorithm
        algorithm = kinds.RNG_THREE_FRY if rng_algorithm == "THREE_FRY" else kinds.RNG_PHILOX
        state, bits = j.lax.rng_bit_generator(state, out[1].shape, kind, algorithm=algorithm)
        return state, bits.astype(out[1].dtype.numpy)


@op("neuron.rng", traits=["random", "effect"])
class Rng(Op):
    """Random numbers from a state that is nobody's: each run gives others. A free choice of the result's shape.

    ``rng_distribution``: ``UNIFORM`` in [a, b) (integers too), ``NORMAL`` with mean ``a`` and deviation ``b``. Kept for StableHLO
    programs; everything else draws from an explicit state.
    """

    a = operand(REAL | {BOOL})
    b = operand(REAL | {BOOL})
    rng_distribution = attr(str, choices=("UNIFORM", "NORMAL"))

    def check(self):
        if (
            not compatible(self.a.type, self.b.type)
            or self.a.type.rank
            or len(self.results) != 1
            or self.results[0].dtype is not self.a.dtype
        ):
            raise self.error("operand", f"two scalars of the result's type are needed, not {self.a.type} and {self.b.type}")
        if self.rng_distribution == "NORMAL" and not self.a.dtype.is_float:
            raise self.error("operand", f"a normal distribution needs floats, not {self.a.dtype}")

    def jax(j, a, b, *, rng_distribution, out):
        dtype = a.dtype
        if j.np.issubdtype(dtype, j.np.floating) and dtype.itemsize < 4:
            a, b = a.astype(j.np.float32), b.astype(j.np.float32)
        if rng_distribution == "UNIFORM":
            return j.lax.rng_uniform(a, b, out.shape).astype(dtype)
        half = j.lax.rng_uniform(j.np.nextafter(-j.np.ones((), a.dtype), 0), j.np.ones((), a.dtype), out.shape)
        return (a + b * (j.np.sqrt(j.np.array(2, a.dtype)) * j.lax.erf_inv(half))).astype(dtype)


@op("neuron.random_bits", traits=["random"])
class RandomBits(Op):
    """The next state and random bits in the integer type and static shape asked for.

    ``state`` is u64[2]: a key and the number of blocks drawn so far. Block i is Philox-4x32-10 of the counter (low half of i, high
    half, 0, 0), or Threefry-2x32-20 of (low half, high half). Its words follow each other, low word first in 64-bit results;
    results of 8 and 16 bits are the low bits of a word each. The counter goes on by the number of blocks drawn.
    """

    state = operand(frozenset({U64}))
    algorithm = attr(str, "PHILOX", choices=ALGORITHMS)

    def check(self):
        check_state(self)
        _bits_types(self, WORDS, "bits")

    def jax(j, state, *, algorithm, out):
        type = out[1]
        double = type.dtype.bits == 64
        state, bits = words(j, state, type.size * (2 if double else 1), algorithm)
        if double:
            low, high = bits[0::2].astype(j.np.uint64), bits[1::2].astype(j.np.uint64)
            bits = low | (high << j.np.uint64(32))
        return state, bits.astype(type.dtype.numpy).reshape(type.shape)


def _uniform_bits(type: DType) -> tuple[DType, int]:
    """The word to draw for one uniform number and how many of its bits fit the type's precision."""
    digits = {"f64": 53, "f32": 24, "tf32": 11, "f16": 11, "bf16": 8}[type.name]
    return (U64 if type.bits == 64 else U32), digits


DRAWN = frozenset(dtype(n) for n in ("f16", "bf16", "f32", "f64"))


def unit_uniform(b: Any, state: Any, type: TensorType, algorithm: str) -> tuple[Any, Expr]:
    """The next state and multiples of 2**-p in [0, 1), where p is the type's precision, so that none is rounded up to 1."""
    word, digits = _uniform_bits(type.dtype)
    state, bits = b.random_bits(state, algorithm=algorithm, out=(STATE, TensorType(type.shape, word)))
    kept = Expr(b, bits).binary("shift_right_logical", word.bits - digits)
    return state, kept.cast(type.dtype) * 2.0**-digits


@op("neuron.random_uniform", traits=["random"])
class RandomUniform(Op):
    """The next state and floats, uniform in [low, high), of the type and static shape asked for. The state is that of random_bits.

    Computed as ``low + (high - low) * u`` in that type with u a multiple of 2**-24 (f32; 53, 11, 8 bits for f64, f16, bf16).
    """

    state = operand(frozenset({U64}))
    low = attr(float, 0.0)
    high = attr(float, 1.0)
    algorithm = attr(str, "PHILOX", choices=ALGORITHMS)

    def check(self):
        check_state(self)
        _bits_types(self, DRAWN, "numbers")

    def expand(b, state, *, low, high, algorithm, out):
        state, u = unit_uniform(b, state, out[1], algorithm)
        if (low, high) == (0.0, 1.0):
            return state, u.value
        drawn = u * (high - low) + low
        return state, drawn.compare("GE", high).where(low, drawn).value


@op("neuron.random_normal", traits=["random"])
class RandomNormal(Op):
    """The next state and floats, normal with ``mean`` and deviation ``std``, of the type and static shape asked for.

    Box and Muller's method in f32 (f64 for f64), rounded once: ``sqrt(-2 log(1 - u)) * cos(2 pi v)`` with u drawn before v.
    """

    state = operand(frozenset({U64}))
    mean = attr(float, 0.0)
    std = attr(float, 1.0)
    algorithm = attr(str, "PHILOX", choices=ALGORITHMS)

    def check(self):
        check_state(self)
        _bits_types(self, DRAWN, "numbers")

    def expand(b, state, *, mean, std, algorithm, out):
        wide = TensorType(out[1].shape, out[1].dtype if out[1].dtype.bits >= 32 else F32)
        state, u = unit_uniform(b, state, wide, algorithm)
        state, v = unit_uniform(b, state, wide, algorithm)
        radius = ((1.0 - u).log() * -2.0).sqrt()
        drawn = radius * (v * 6.283185307179586).unary("cosine")
        return state, (drawn * std + mean).cast(out[1].dtype).value


@op("neuron.dropout", traits=["random"], aten="native_dropout.default")
class Dropout(Op):
    """``x * mask / (1 - p)`` with a random mask that is false with probability ``p``; gives the value, the mask and the next state.

    An element is kept where a random u32 word is at least ``p * 2**32``. Without ``train``: ``x``, all true, and the same state.
    Dropped elements are multiplied by 0, so NaN stays NaN. ``p = 1`` drops all. Floats narrower than f32 are scaled in f32.
    """

    x = operand(FLOAT)
    state = operand(frozenset({U64}))
    p = attr(float, 0.5)
    train = attr(bool, True)
    algorithm = attr(str, "PHILOX", choices=ALGORITHMS)

    def infer(self):
        check_state(self)
        if not 0 <= self.p <= 1:
            raise self.error("attr", f"p = {self.p} is no probability")
        return self.x.type, self.x.type.with_dtype(BOOL), STATE

    def expand(b, x, state, *, p, train, algorithm):
        threshold = round(p * 2**32)
        type = x.type.with_dtype(U32)
        if not train or threshold == 0:
            return x, Expr(b, b.const(True, BOOL)).broadcast(type.shape).value, state
        state, bits = b.random_bits(state, algorithm=algorithm, out=(STATE, type))
        if threshold == 2**32:
            mask = Expr(b, b.const(False, BOOL)).broadcast(type.shape)
        else:
            mask = Expr(b, bits).compare("GE", threshold)
        wide = x.dtype if x.dtype.bits >= 32 else F32
        kept = Expr(b, x).cast(wide) * mask.cast(wide)
        return (kept if p == 1 else kept * (1.0 / (1.0 - p))).cast(x.dtype).value, mask.value, state
