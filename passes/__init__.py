"""Passes over Neuron IR, one file per pass; the file's name is the pass's name."""
