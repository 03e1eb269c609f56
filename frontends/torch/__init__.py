"""PyTorch: the torch.export importer, the torch.compile backend and the device."""
