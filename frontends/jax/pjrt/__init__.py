"""The PJRT plugin that gives JAX the platform named neuron."""
