"""JAX and StableHLO: the importer that walks jaxlib's MLIR module, and the PJRT plugin."""
