"""Chain labelers with a posterior over their weights: predictions are averages over draws."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from bayeseq.chain import Chain, constrain
from bayeseq.data.batch import SequenceBatch
from bayeseq.data.labels import Labels
from bayeseq.kernels.design import Design
from bayeseq.kernels.maps import FeatureMap
from bayeseq.labelers.chain import ChainLabeler, obey_scheme
from bayeseq.labelers.draws import Answers, answers_of_chains, to_arviz
from bayeseq.labelers.uncertain import Draws, position_noise, prior_sd, token_draws


class Posterior(Protocol):
    """What is known of weights (D + C, C): features, and after them transitions [from, to]."""

    @property
    def mean(self) -> Tensor:
        """(D + C, C)"""

    @property
    def log_variance(self) -> Tensor:
        """(G, C) log prior variances"""

    def draws(self, n: int, generator: torch.Generator) -> Tensor:
        """(n, D + C, C)"""


class PosteriorLabeler(ChainLabeler):
    """A chain labeler whose scores are linear in weights that have a posterior.

    A subclass sets `feature_map_` and `posterior_` in `_learn` and says by `_averages` whether
    predictions average over draws of the weights or take their mean. `spread_` multiplies the
    draws' deviations from the mean in all of them.
    """

    feature_map_: FeatureMap
    posterior_: Posterior
    spread_: float
    random_state: int
    _draws_: Tensor | None
    """Draws that predictions average over, made when first needed"""

    @property
    @abstractmethod
    def _averages(self) -> int:
        """How many draws predictions average over; 0: they take the mean of the weights."""

    @property
    def _copies(self) -> int:
        return max(1, self._averages)

    def _set_posterior(self, feature_map: FeatureMap, posterior: Posterior, spread: float) -> None:
        self.feature_map_, self.posterior_, self.spread_ = feature_map, posterior, spread
        self._draws_ = None

    def _scores(self, batch: SequenceBatch) -> Chain:
        if self._averages == 0:
            return self._chain_of(batch, self.posterior_.mean)
        if self._draws_ is None:
            self._draws_ = self._averaged_weights()
        return self._chain_of(batch, self._draws_, self.random_state)

    def _averaged_weights(self) -> Tensor:
        """(S, D + C, C) the weights whose answers predictions average."""
        return self._drawn(self._averages, self.random_state)

    def _drawn(self, draws: int, seed: int) -> Tensor:
        """(S, D + C, C) draws of the weights, spread as predictions want them."""
        drawn = self.posterior_.draws(draws, torch.Generator().manual_seed(seed))
        return torch.lerp(self.posterior_.mean, drawn, self.spread_)

    def _chain_of(
        self,
        batch: SequenceBatch,
        weights: Tensor,
        seed: int | None = None,
        noise: Tensor | None = None,
    ) -> Chain:
        """The chain of weights (…, D + C, C). With a seed, what the feature map leaves out of new
        tokens is drawn too; `noise` (S, N, C) is added to the local scores."""
        features, residual = self.feature_map_.features(batch.features)
        D = features.shape[1]
        f = Design(features).product(weights[..., :D, :])
        if seed is not None and residual.any():
            variance = self.posterior_.log_variance[0].exp()
            sd = torch.from_numpy(residual).unsqueeze(-1).mul(variance).sqrt() * self.spread_
            f = f + position_noise(batch.layout, len(f), f.shape[-1], seed) * sd
        if noise is not None:
            f = f + noise * self.spread_
        return Chain(f, weights[..., D:, :], batch.layout)

    def posterior_predict(
        self,
        X: Iterable[Any],
        draws: int = 100,
        given: Labels | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> list[np.ndarray]:
        """(draws, T, C) label probabilities of each sequence, under draws from the posterior of the
        weights: how they vary from draw to draw is what the model does not know."""
        return token_draws(Draws(self, X, draws, given, random_state))

    def to_arviz(
        self,
        X: Iterable[Any],
        y: Labels,
        draws: int = 200,
        random_state: int | np.random.Generator | None = None,
        weights: bool | int = False,
    ) -> Any:
        """Draws from the posterior with what they say of X and y, for arviz; see `GPSL.to_arviz`.
        `dependency` at offset −1 holds the transitions."""
        self._require_posterior()
        return to_arviz(self, X, y, draws, random_state, weights)

    def _require_posterior(self) -> None:
        """Refuse where there is only a point."""

    def _drawn_weights(self, draws: int, seed: int) -> Tensor:
        return self._drawn(draws, seed)

    def _drawn_chain(
        self, part: SequenceBatch, weights: Tensor, seed: int, noise: Tensor | None
    ) -> Chain:
        return self._ruled(self._chain_of(part, weights, seed, noise), part)

    def _prior_sd(self, names: Sequence[str]) -> np.ndarray:
        return prior_sd(self, names)

    def _ruled(self, chain: Chain, part: SequenceBatch) -> Chain:
        if part.allowed is not None:
            chain = constrain(chain, allowed=part.allowed)
        return obey_scheme(chain, self.scheme, self.label_space_.classes)

    # ---- for arviz ------------------------------------------------------------------------------

    @property
    def _offsets(self) -> tuple[int, ...]:
        return (-1,)

    @property
    def _n_chains(self) -> int:
        return 1

    def _draw_answers(self, part: SequenceBatch, draws: int, generator: torch.Generator) -> Answers:
        seed = generator.initial_seed()
        chain = self._chain_of(part, self._drawn(draws, seed), seed)
        free = obey_scheme(chain, self.scheme, self.label_space_.classes)
        return answers_of_chains(free, self._ruled(chain, part), generator)
