"""Inputs for any transformers model, made from the signature of its forward and its configuration.

Several candidates are given in turn; the first that the model takes counts. Where an image or a sound stands for a number of
placeholder tokens, that number is read from the model's own complaint about a wrong one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

TOKENS, BATCH = 12, 2
# Sizes of images in patches: they decide shapes, so they are part of the program, not inputs of it.
GEOMETRY = (
    "image_merge_sizes",
    "image_grid_thw",
    "image_sizes",
    "spatial_shapes",
    "target_sizes",
    "image_position_ids",
    "image_grid_hw",
)

Inputs = dict[str, Any]


def inputs_for(family: str, model: Any) -> Iterator[Inputs]:
    """Seeded candidates by name of the argument."""
    import torch

    asked = set(inspect.signature(model.forward).parameters)
    sounds = asked & {"input_features", "input_values"}
    if family == "image-text" or (family == "image" and "pixel_values" in asked and "input_ids" in asked):
        layouts = _pictures(model, asked)
    elif family == "image" and "pixel_values" in asked:
        layouts = _pictures(model, asked, batch=BATCH)
    elif family in ("speech", "ctc", "audio", "seq2seq") and sounds:
        layouts = _sounds(model, asked)
    else:
        yield from _text(model, asked, family)
        return
    for layout in layouts:
        torch.manual_seed(1)
        given = {k: v() if callable(v) else v for k, v in layout.items()}
        yield from _with_text(model, asked, given)


def _ids(tokens: int = TOKENS, batch: int = BATCH) -> Any:
    """Rows of text without a token twice: equal tokens have equal scores, and torch leaves open which of those ``topk`` takes."""
    import torch

    from tests.yardsticks.shrink import FIRST_SPECIAL

    return torch.stack([4 + torch.randperm(FIRST_SPECIAL - 4)[:tokens] for _ in range(batch)])


def _text(model: Any, asked: set[str], family: str) -> Iterator[Inputs]:
    """Ids of text, or of several streams of sound."""
    import torch

    torch.manual_seed(1)
    books = getattr(model.config, "num_codebooks", None)
    rows = BATCH * books if books and model.config.model_type.startswith("musicgen") else BATCH
    given: Inputs = {"input_ids": _ids(batch=rows)}
    if family in ("masked", "seq2seq") and "attention_mask" in asked:
        mask = torch.ones(BATCH, TOKENS, dtype=torch.long)
        mask[1, 9:] = 0
        given["attention_mask"] = mask
    if "decoder_input_ids" in asked:
        given["decoder_input_ids"] = _ids(7)
    yield given
    if books:
        yield {**given, "input_ids": _ids(BATCH * TOKENS, books + 1).T.reshape(BATCH, TOKENS, books + 1).contiguous()}
    if "decoder_input_ids" in asked:
        streams = field(model.config, "num_channels", 9)
        yield {**given, "decoder_input_ids": _ids(7 * BATCH, streams).T.reshape(BATCH, 7, streams).contiguous()}


# --- images -----------------------------------------------------------------------------------------------------------


def _pictures(model: Any, asked: set[str], batch: int = 1) -> Iterator[Inputs]:
    """Plain images, images cut in tiles, and images cut in patches with their grid."""
    import torch

    config = model.config
    size, channels, patch = field(config, "image_size", 32), field(config, "num_channels", 3), field(config, "patch_size", 8)
    height, width = size if isinstance(size, list | tuple) else (size, size)
    patch = patch if isinstance(patch, int) else patch[-1]
    flat = channels * patch * patch
    if "image_grid_thw" in asked:
        frames = field(config, "temporal_patch_size", 1)
        for length in (flat * frames, flat, 2 * flat):
            grid = {"image_grid_thw": torch.tensor([[1, 4, 4]])}
            if "image_merge_sizes" in asked:
                grid["image_merge_sizes"] = torch.tensor([2])
            yield {"pixel_values": lambda n=length: torch.randn(16, n), **grid}
        yield {"pixel_values": lambda: torch.randn(16, channels, patch, patch), "image_grid_thw": torch.tensor([[1, 4, 4]])}
    if "spatial_shapes" in asked:
        whole = {"spatial_shapes": torch.tensor([[4, 4]]), "pixel_attention_mask": torch.ones(1, 16, dtype=torch.long)}
        yield {"pixel_values": lambda: torch.randn(1, 16, flat), **whole}
    if "target_sizes" in asked:
        yield {"pixel_values": lambda: torch.randn(1, channels, patch, 16 * patch), "target_sizes": torch.tensor([[4, 4]])}
    if "image_position_ids" in asked:
        places = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="xy"), -1).reshape(1, 16, 2)
        for n in (1, field(config, "pooling_kernel_size", 1) ** 2):
            yield {"pixel_values": lambda n=n: torch.randn(1, 16, n * flat), "image_position_ids": places}
    if "flattened_patches" in asked:
        places = torch.cartesian_prod(torch.arange(1.0, 5), torch.arange(1.0, 5))[None]
        width = field(config, "patch_embed_hidden_size", flat)
        yield {"flattened_patches": lambda: torch.cat([places, torch.randn(1, 16, width)], -1)}
        return
    plain: Inputs = {"pixel_values": lambda: torch.randn(batch, channels, height, width)}
    if "high_res_pixel_values" in asked:
        plain["high_res_pixel_values"] = lambda: torch.randn(batch, channels, height, width)
    if "aspect_ratio_ids" in asked:
        tiles = field(config, "max_num_tiles", 4)
        kinds = {"aspect_ratio_ids": torch.tensor([[1]]), "aspect_ratio_mask": torch.ones(1, 1, tiles, dtype=torch.long)}
        yield {"pixel_values": lambda: torch.randn(1, 1, tiles, channels, height, width), **kinds}
    if "image_sizes" in asked:
        sizes = torch.tensor([[height, width]])
        yield {**plain, "image_sizes": sizes}
        for tiles in (2, 3, 5):
            yield {"pixel_values": lambda n=tiles: torch.randn(1, n, channels, height, width), "image_sizes": sizes}
    yield plain
    yield {"pixel_values": lambda: torch.randn(1, 1, channels, height, width)}
    yield {"pixel_values": lambda: torch.randn(1, 2, channels, height, width)}
    for n in (1, 2, field(config, "pooling_kernel_size", 1) ** 2):
        yield {"pixel_values": lambda n=n: torch.randn(1, 16, n * flat)}


# --- sounds -----------------------------------------------------------------------------------------------------------


def _sounds(model: Any, asked: set[str]) -> Iterator[Inputs]:
    """Spectrograms with bands first or last, and raw samples."""
    import torch

    config = model.config
    if "input_values" in asked and "input_features" not in asked:
        longest = getattr(config, "max_length", None)
        if longest:
            yield {"input_values": lambda: torch.randn(1, longest, field(config, "num_mel_bins", 32))}
        yield {"input_values": lambda: torch.randn(1, 4000)}
        yield {"input_values": lambda: torch.randn(1, 1, 4000)}
        return
    names = ("feature_projection_input_dim", "num_mel_bins", "input_dim", "input_feat_size", "input_feat_per_channel", "d_model")
    widths = list(dict.fromkeys(w for w in (*(field(config, n, None) for n in names), 128, 80) if w))
    lengths = list(dict.fromkeys([2 * field(config, "max_source_positions", 32), 2 * field(config, "n_window", 32), 64, 96]))
    for bands in widths:
        for frames in lengths:
            for shape in ((1, bands, frames), (1, frames, bands)):
                given: Inputs = {"input_features": lambda s=shape: torch.randn(s)}
                if "feature_attention_mask" in asked:
                    yield {**given, "feature_attention_mask": torch.ones(1, frames, dtype=torch.long)}
                if "input_features_mask" in asked:
                    yield {**given, "input_features_mask": torch.ones(1, frames, dtype=torch.bool)}
                yield given


# --- text beside them -------------------------------------------------------------------------------------------------


def _with_text(model: Any, asked: set[str], given: Inputs) -> Iterator[Inputs]:
    """The given inputs alone, or with as many placeholder tokens as the model says that they are worth."""
    import torch

    batch = next(iter(given.values())).shape[0] if "image_grid_thw" not in given and "target_sizes" not in given else 1
    if "decoder_input_ids" in asked and not (asked & {"input_ids"} and "pixel_values" in given):
        given = {**given, "decoder_input_ids": _ids(7, batch)}
    if "qformer_input_ids" in asked:
        given = {**given, "qformer_input_ids": _ids(5, batch)}
    names = (
        ("audio_token", "audio_token_index") if given.keys() & {"input_features", "input_values"} else ("image_token", "im_patch")
    )
    token = next((t for n in names for t in [field(model.config, f"{n}_id", field(model.config, f"{n}_index", None))] if t), None)
    if "input_ids" not in asked or token is None:
        if "input_ids" in asked and "decoder_input_ids" not in given:
            given = {"input_ids": _ids(batch=batch), **given, **_places(model, asked, batch)}
        yield given
        if "decoder_input_ids" in asked - given.keys():
            yield {**given, "decoder_input_ids": _ids(7, batch)}
        return
    count, tried = 4, set()
    while count not in tried and 0 < count < 100 and len(tried) < 4:
        tried.add(count)
        ids = torch.cat([_ids(3, batch), torch.full((batch, count), token), _ids(6, batch)], 1)
        whole = {"input_ids": ids, **given}
        if "mm_token_type_ids" in asked:
            whole["mm_token_type_ids"] = (ids == token).long()
        if "attention_mask" in asked and "image_grid_thw" in asked:
            whole["attention_mask"] = torch.ones_like(ids)
        if "decoder_input_ids" in asked:
            whole["decoder_input_ids"] = _ids(7, batch)
        count = _wanted(model, whole, count)
        if count in tried:
            yield whole


def _places(model: Any, asked: set[str], batch: int) -> Inputs:
    """What a text says of its places: their boxes on a page, which of them see an image, which of them are one."""
    import torch

    given: Inputs = {}
    if "bbox" in asked:
        given["bbox"] = torch.rand(batch, TOKENS, 4).sort(-1).values
    if "image_attention_mask" in asked:
        given["image_attention_mask"] = torch.ones(batch, TOKENS, 1, dtype=torch.long)
    if "image_embeds_position_mask" in asked:
        places = torch.arange(TOKENS) < field(model.config, "latent_query_num", 4)
        given["image_embeds_position_mask"] = places.expand(batch, TOKENS).clone()
    return given


def _wanted(model: Any, given: Inputs, count: int) -> int:
    """How many placeholders the model asks for; ``count`` where it does not complain of them."""
    import torch

    try:
        with torch.no_grad():
            model(**given)
    except Exception as error:
        rows = re.search(r"shape of the mask .* indexed tensor \[1, (\d+),", str(error))
        if rows and "input_features_mask" in given:  # the mask is that of the encoder's rows
            given["input_features_mask"] = torch.ones(1, int(rows[1]), dtype=torch.bool)
            return _wanted(model, given, count)
        said = re.findall(r"features(?! and)\D*(\d+)", str(error)) if "token" in str(error) else []
        if said:
            features = int(said[-1])
            hidden = field(model.config, "hidden_size", 64)
            return features // hidden if features >= 100 and features % hidden == 0 else features // batch_of(given)
    return count


def batch_of(given: Inputs) -> int:
    """Rows of text: the model counts the features of all of them."""
    return int(given["input_ids"].shape[0])


def field(config: Any, name: str, default: Any) -> Any:
    """The first value of a field in a configuration or the ones inside of it."""
    from transformers import PretrainedConfig

    own = vars(config).get(type(config).attribute_map.get(name, name))
    if own is not None:
        return own
    inner = [v for v in vars(config).values() if isinstance(v, PretrainedConfig)]
    return next((v for v in (field(c, name, None) for c in inner) if v is not None), default)
