"""JAX front end: JAX functions and StableHLO modules into Neuron IR."""
