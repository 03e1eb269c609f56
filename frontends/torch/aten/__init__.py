"""The rules from ATen operations to ops, by family; see ``frontends/torch/lowering.py``."""
