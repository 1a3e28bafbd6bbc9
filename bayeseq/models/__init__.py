"""What is believed before and how data speaks: priors and likelihoods as Pyro programs."""

from bayeseq.models.gpsc import GPSCModel
from bayeseq.models.gpsl import GPSLModel, dependency_columns
from bayeseq.models.latent import LatentModel, WeightModel

__all__ = ["GPSCModel", "GPSLModel", "LatentModel", "WeightModel", "dependency_columns"]
