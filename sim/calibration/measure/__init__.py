"""Timing kernels and captured decoder steps on this machine's GPU; only `torch_device.py` knows PyTorch."""
