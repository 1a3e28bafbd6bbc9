"""How a posterior is found, and what it says: generic over models, kernels and data."""
