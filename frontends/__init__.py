"""Importers and framework integrations that turn user programs into Neuron IR."""
