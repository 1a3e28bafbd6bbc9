"""What is believed before and how data speaks: priors and likelihoods as Pyro programs."""

from bayeseq.models.gpsl import GPSLModel, dependency_columns
from bayeseq.models.latent import LatentModel

__all__ = ["GPSLModel", "LatentModel", "dependency_columns"]
