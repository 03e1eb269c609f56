"""The torch device named neuron."""
