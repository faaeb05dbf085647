"""What only a GPU can show of the backend: `hack/gpu-check`."""
