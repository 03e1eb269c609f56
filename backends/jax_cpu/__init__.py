"""The reference accelerator: Neuron IR evaluated by JAX on the CPU."""
