"""A small configuration of any transformers model: every size clipped by its name, special tokens moved into the vocabulary."""

from __future__ import annotations

import copy
import functools
import importlib.util
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

HIDDEN, HEADS, KEYS, HEAD, LAYERS, EXPERTS, VOCABULARY, IMAGE, PATCH = 64, 4, 2, 16, 2, 4, 128, 32, 8
FIRST_SPECIAL = 96  # ids below are text

# The first line that names a field gives the largest value that it keeps; * stands for anything, 0 for the heads of keys.
_LIMITS: list[tuple[int, str]] = [
    (16, "index_n_heads"),  # with few of them scores are 0 for several tokens, and torch leaves open which of equal ones it takes
    (0, "*num_key_value_heads *num_kv_heads num_query_groups linear_num_key_heads"),
    (8, "mamba_n_heads mamba_num_heads n_mamba_heads linear_num_value_heads linear_num_heads"),
    (
        HEADS,
        "*num_attention_heads *attention_heads *num_heads *n_head *n_heads *heads *num_attn_heads decoder_attention_num_groups",
    ),
    (2 * HEAD, "qk_head_dim"),
    (HEAD, "rotary_dim hc_lowrank ple_embed_dim"),
    (HEAD, "*head_dim d_head d_kv mamba_d_head mamba_headdim attention_head_size kv_channels dim_head"),
    (HEAD, "*d_state *state_size resampler_dim_head router_hidden_size *_rank d_rel o_groups"),
    (IMAGE, "rel_extent"),
    (EXPERTS, "*num_experts n_routed_experts num_local_experts n_experts zero_expert_num"),
    (2, "num_experts_per_tok num_experts_per_token moe_k moe_topk moe_top_k top_k_experts experts_top_k top_k experts_per_token"),
    (1, "n_group n_groups num_expert_group topk_group n_shared_experts num_shared_experts moe_layer_start_index"),
    (1, "first_k_dense_replace num_dense_layers max_window_layers num_kv_shared_layers num_timestamp_prediction_layers"),
    (1, "num_self_attends_per_block aligner_num_add_layers resampler_depth"),
    (LAYERS, "*num_hidden_layers *num_layers *n_layer *n_layers *depth *encoder_layers *decoder_layers *layers *num_blocks"),
    (LAYERS, "num_layers_per_stack"),
    (VOCABULARY, "*vocab_size* codebook_size codebook_vocab_size num_embeddings encoder_hash_byte_group_vocab"),
    (2 * IMAGE, "max_source_positions max_target_positions"),
    (IMAGE, "*image_size *resolution"),
    (PATCH, "patch_size vision_patch_size"),
    (16, "num_position_embeddings num_patches"),
    (
        VOCABULARY,
        "position_embedding_size *max_position_embeddings *n_positions *max_seq_len *context_length *n_ctx *max_seq_length",
    ),
    (VOCABULARY, "max_text_positions max_speech_positions max_pos_emb max_2d_position_embeddings tpu_short_seq_length seq_len"),
    (8, "sliding_window sliding_window_size attention_chunk_size *chunk_size local_attention attention_window* keep_window_size"),
    (4, "index_topk index_block_size index_kpool block_size conf_attention_chunk_size context_size local_attention_window_len"),
    (
        4,
        "mm_tokens_per_image num_landmarks segment_means_seq_len num_query_tokens latent_query_num resampler_n_latents"
        " *num_latents",
    ),
    (32, "num_mel_bins input_feat_size feature_size feature_dim n_mel_bins input_feat_per_channel num_mels"),
    (96, "*intermediate_size *ffn_dim *ffn_hidden_size d_ff d_inner *_ffn mlp_dim feed_forward_size dim_ff dff n_inner *size_mlp"),
    (
        HIDDEN,
        "*hidden_size *hidden_dim *d_model *n_embd *embd_dim *embedding_size *projection_dim *proj_dim *emb_size d_latents *width",
    ),
    (HIDDEN, "*_dim dim *conv_channels *_channels *_channel d_embed *projection_size *_units *hidden_size_* *_size_global"),
    (HIDDEN, "num_codevectors_per_group upsample_groups *hidden_dimension *input_size classifier_proj_size"),
    (4, "num_conv_pos_embedding_groups num_filters num_codevector_groups num_groups"),
    (8, "num_conv_pos_embeddings conv_pos_kernel_size num_classes max_num_tiles max_temporal_embeddings num_labels"),
]
_KEPT = "num_feat_extract_layers num_channels in_channels in_chans out_channels num_input_channels spatial_scale_factor rope_dim"
_LAYER_NUMBERS = "*feature_layer *feature_layers *vision_layers *layers_indices *attn_indexes"
_NEEDED = (
    "head_dim num_key_value_heads moe_intermediate_size n_routed_experts num_experts_per_tok vocab_size"  # though None by default
)
_WIDTHS = "*hidden_sizes *embed_dim *embed_dims *conv_dim *dims *channels tdnn_dim"
_DEPTHS = "depths num_block_repeats n_attn_blocks stage_num_blocks stage_numb_of_layers block_sizes"
_TOKENS = "*token_id *token_index *_token *token_ids *eos_* *bos_* *pad_id *_start_id *_end_id *_newline_id *patch_id *k_index"
_DROPPED = "*dropout *drop_rate *drop_path_rate *dropout_p *layerdrop *dropout_rate *dropout_prob *pdrop"


def _is_among(name: str, patterns: str) -> bool:
    return any(fnmatchcase(name, p) for p in patterns.split())


class Shrink:
    """Shrinks configurations of one model; ``options`` turn single habits off where a model cannot live with them."""

    def __init__(self, *, mix_layers: bool = True, keys: int = KEYS, fields: Any = None, tokens: Any = None):
        self.mix_layers = mix_layers
        self.keys = keys
        self.fields = fields or {}
        self.tokens: dict[str, int] = {} if tokens is None else tokens

    def __call__(self, config: Any) -> Any:
        """A new configuration of the same class."""
        given = {k: v for k, v in vars(config).items() if not k.startswith("_") and k != "transformers_version"}
        if "kv_lora_rank" in given:  # latent attention: as many heads of keys as of queries
            heads = copy.copy(self)
            heads.keys = HEADS
            return heads.made(config, given)
        return self.made(config, given)

    def made(self, config: Any, given: dict[str, Any]) -> Any:
        """A configuration of the same class with the given fields shrunk."""
        from transformers import PretrainedConfig

        changes: dict[str, Any] = {}
        layers = next((given[k] for k in ("num_hidden_layers", "n_layer", "num_layers", "decoder_layers") if k in given), None)
        picked = self.picked(given, layers)
        for name, value in given.items():
            if name in self.fields:
                changes[name] = self.fields[name]
            elif value is None and name == "vision_config" and name in type(config).sub_configs:
                changes[name] = self(type(config).sub_configs[name]())
            elif isinstance(value, PretrainedConfig):
                changes[name] = self(value)
            elif name == "rope_parameters" and isinstance(value, dict) and "mrope_section" in _source(type(config)):
                section = {"mrope_section": [0, 0, 0]}
                of_layers = {k: section | v for k, v in value.items() if isinstance(v, dict)}
                changes[name] = self.in_dict(name, value | of_layers if of_layers else section | value)
            elif isinstance(value, dict) and all(isinstance(k, str) for k in value) and name != "label2id":
                new = self.in_dict(name, value)
                if new != value:
                    changes[name] = new
            elif picked and isinstance(value, list | tuple) and len(value) == layers:
                changes[name] = type(value)(value[i] for i in picked)
            else:
                new = self.field(name, value)
                if new is not value and new != value:
                    changes[name] = new
        if "use_cache" in given:
            changes["use_cache"] = False
        if "initializer_range" in given:
            changes["initializer_range"] = 0.1
        changes.update({k: v for k, v in self.fields.items() if k in given})
        new = type(config)(**changes)
        for name, value in (changes | self.fields).items():  # some classes know a field by another name when they are made
            if isinstance(value, bool | int | str) and vars(new).get(type(new).attribute_map.get(name, name)) != value:
                setattr(new, name, value)
        return new

    def picked(self, given: dict[str, Any], layers: Any) -> list[int]:
        """Which layers stay: the first, and the first that differs from it in the most per-layer lists."""
        if not isinstance(layers, int) or layers <= LAYERS or "depths" in given:
            return []
        lists = [v for v in given.values() if isinstance(v, list | tuple) and len(v) == layers]
        if not lists or not self.mix_layers:
            return list(range(LAYERS)) if lists else []
        unlike = [sum(v[i] != v[0] for v in lists) for i in range(layers)]
        return [0, max(range(1, layers), key=lambda i: (unlike[i], -i))]

    def in_dict(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        """Dictionaries of numbers: rotary settings, feed-forward and attention sub-configurations."""
        new = {k: self.in_dict(k, v) if isinstance(v, dict) else self.field(k, v) for k, v in given.items()}
        section = given.get("mrope_section")
        if section:  # how many rotary frequencies of a head are for height, width and time
            half = int(HEAD * given.get("partial_rotary_factor", 1.0)) // 2
            shares = [3 * half // 8, 3 * half // 8, half - 2 * (3 * half // 8)]
            new["mrope_section"] = type(section)(shares if len(section) == 3 else [2] * len(section))
        return new

    def field(self, name: str, value: Any) -> Any:
        """The new value of one plain field."""
        if _is_among(name, _TOKENS):
            return self.token(name, value)
        if isinstance(value, float) and _is_among(name, _DROPPED):
            return 0.0
        if isinstance(value, list | tuple) and value and all(type(v) is int for v in value):
            return type(value)(self.listed(name, list(value)))
        if name == "image_grid_pinpoints" and value:
            return [[IMAGE, 2 * IMAGE], [2 * IMAGE, IMAGE]]
        if value is None and _is_among(name, _NEEDED):
            value = VOCABULARY
        if type(value) is not int or _is_among(name, _KEPT):
            return value
        for limit, names in _LIMITS:
            if _is_among(name, names):
                return min(value, limit or self.keys)
        return value

    def listed(self, name: str, value: list[int]) -> list[int]:
        if _is_among(name, _DEPTHS):
            return [min(v, 2) for v in value]
        if name in ("num_heads", "num_attention_heads"):
            return [2**i for i in range(len(value))]
        if _is_among(name, _WIDTHS):
            order = sorted(set(value))
            return [16 * 2 ** order.index(v) if len(order) > 1 else 32 for v in value]
        if _is_among(name, _LAYER_NUMBERS):
            return [max(-LAYERS, min(v, LAYERS - 1)) for v in value]
        if _is_among(name, "*image_size *resolution"):
            return [min(v, IMAGE) for v in value]
        return [min(v, PATCH) for v in value] if name == "patch_size" else value

    def token(self, name: str, value: Any) -> Any:
        """Ids beyond the small vocabulary move into its upper part; one name, one id."""
        if isinstance(value, list | tuple):
            return type(value)(self.token(f"{name}.{i}", v) for i, v in enumerate(value))
        if type(value) is not int or value < FIRST_SPECIAL:
            return value
        key = re.sub(r"_(id|index)$", "", name)
        return self.tokens.setdefault(key, FIRST_SPECIAL + len(self.tokens) % (VOCABULARY - FIRST_SPECIAL))


_ROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [3, 3, 2]}
_ROPE_BY_LAYERS = {"full_attention": _ROPE, "sliding_attention": _ROPE}
# The words of image tokens: a start, an end of line, and as Chameleon and Emu3 write the codes.
_IMAGE_WORDS = {"<image>": 120, "<|extra_200|>": 119}
_IMAGE_WORDS |= {f"<|visual token {i:06d}|>": i for i in range(VOCABULARY)}
_IMAGE_WORDS |= {f"IMGIMG{''.join(chr(ord('A') + int(d)) for d in str(i))}Z": i for i in range(VOCABULARY)}

# Fields of one type that have to fit together in a way that no rule by name knows.
_FIELDS: dict[str, dict[str, Any]] = {
    "aria": {"projector_patch_to_query_dict": {16: 4}},
    "blip-2": {"image_token_index": 120},
    "chameleon": {"vocabulary_map": _IMAGE_WORDS},
    "cohere_compass": {"rope_parameters": _ROPE_BY_LAYERS},
    "cohere_compass_text": {"rope_parameters": _ROPE_BY_LAYERS},
    "dbrx": {"rope_theta": 10000, "clip_qkv": 8},
    "deepseek_ocr2": {"mlp_layer_types": ["dense", "sparse"]},
    "diffusion_gemma": {"num_experts": EXPERTS, "top_k_experts": 2, "moe_intermediate_size": 96},
    "dory": {
        "num_hidden_layers": 3,
        "n_input_layers": 1,
        "n_recurrent_layers": 1,
        "n_output_layers": 1,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "donut-swin": {"window_size": 2, "image_size": 64},
    "dots1": {"n_shared_experts": 1},
    "efficientnet": {
        "width_coefficient": 1.0,
        "depth_coefficient": 0.3,
        "hidden_dim": 1280,
        "in_channels": [32, 16, 24, 40, 80, 112, 192],
        "out_channels": [16, 24, 40, 80, 112, 192, 320],
    },
    "emu3": {"vocabulary_map": _IMAGE_WORDS},
    "esmc": {"vocab_size": VOCABULARY},
    "esm": {"vocab_size": VOCABULARY, "pad_token_id": 1, "mask_token_id": 127},
    "granite4_vision": {"deepstack_layer_map": [[-1, 0]]},
    "hgnet_v2": {
        "stem_channels": (3, 8, 16),
        "stage_in_channels": (16, 32, 64, 128),
        "stage_mid_channels": (16, 16, 32, 64),
        "stage_out_channels": (32, 64, 128, 128),
    },
    "instructblip": {"image_token_index": 120},
    "instructblipvideo": {"video_token_index": 120},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "levit": {"image_size": 64, "patch_size": 16},
    "llama4": {"intermediate_size": 256},
    "mamba2": {"num_heads": 8},
    "mistral4": {"head_dim": 2 * HEAD},
    "mllama": {"vision_output_dim": 6 * HIDDEN},
    "mobilebert": {"intra_bottleneck_size": HIDDEN},
    "mobilevitv2": {"image_size": 64},
    "moonshine_streaming": {"num_key_value_heads": HEADS},
    "qwen2_5_omni_thinker": {"vision_start_token_id": 121, "audio_start_token_id": 122},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": 121, "audio_start_token_id": 122},
    "reformer": {
        "axial_pos_shape": (3, 4),
        "axial_pos_embds_dim": (16, 48),
        "local_attn_chunk_length": 4,
        "lsh_attn_chunk_length": 4,
    },
    "step3p7": {"sliding_window": 8},
    "swin": {"window_size": 2, "image_size": 64},
    "textnet": {"stem_out_channels": 16},
    "voxtral": {"intermediate_size": 4 * HIDDEN, "audio_token_id": 120},
    "xmod": {"default_language": "en_XX"},
}


def attempts(kind: str) -> Iterator[Any]:
    """Shrunken configurations of a model type, the most telling one first."""
    from transformers import CONFIG_MAPPING

    failure: Exception | None = None
    made: list[Any] = []
    for mix, keys in ((True, KEYS), (True, HEADS), (False, KEYS), (False, HEADS)):
        try:
            made.append(Shrink(mix_layers=mix, keys=keys, fields=_FIELDS.get(kind))(CONFIG_MAPPING[kind]()))
        except Exception as error:
            failure = failure or error
    if failure is not None and not made:
        raise failure
    yield from made


@functools.cache
def _source(config: type) -> str:
    """The modelling code beside a configuration class."""
    spec = importlib.util.find_spec(config.__module__.replace("configuration_", "modeling_"))
    return Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
