"""Neuron IR: a readable intermediate representation for PyTorch and JAX programs on AWS Trainium."""

__version__ = "0.1.0"
