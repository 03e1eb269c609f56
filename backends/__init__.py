"""Executors of Neuron IR, looked up by name through backends.base."""
