"""Candidate entities, and the three things that their probability may mean."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bayeseq.chain import Chain, overlap_log_prob, span_log_prob
from bayeseq.data.batch import SequenceBatch
from bayeseq.data.errors import DataError
from bayeseq.data.schemes import Entity, continues, entity_types
from bayeseq.labelers.guards import check_choice, numbered

MEANINGS = ("exact", "boundaries", "overlap")


class EntityQuestion:
    """Whether candidate entities are there, in one of three meanings (`MEANINGS`):

    - "exact": an entity with exactly these boundaries and this label;
    - "boundaries": an entity with exactly these boundaries, whatever its label;
    - "overlap": an entity with this label, and with at least one token in the span.

    Entities are read off labels as `tags_to_entities` reads them.
    """

    def __init__(
        self, entities: Sequence[Sequence[Entity]], meaning: str, classes: Sequence[str]
    ) -> None:
        check_choice("meaning", meaning, MEANINGS)
        self.entities, self.meaning = entities, meaning
        types = entity_types(classes)
        self._continues = torch.from_numpy(continues(classes))
        self._any = torch.tensor([kind is not None for kind in types])
        self._none = torch.zeros(len(types), dtype=torch.bool)
        self._of_type = {
            kind: torch.tensor([kind == found for found in types]) for kind in set(types) - {None}
        }

    def check(self, batch: SequenceBatch) -> None:
        """Refuse candidates that do not lie in the sequences of a whole batch."""
        if len(self.entities) != batch.layout.n_sequences:
            raise DataError(
                f"X has {batch.layout.n_sequences} sequences, entities has {len(self.entities)}"
            )
        for i, (n, row) in enumerate(
            zip(batch.layout.lengths.tolist(), self.entities, strict=True)
        ):
            for start, end, label in row:
                if not 0 <= start < end <= n:
                    raise DataError(
                        f"sequence {i}: entity ({start}, {end}, {label!r}) does not lie in its "
                        f"{n} tokens"
                    )

    def places(self, part: SequenceBatch) -> list[tuple[int, int]]:
        """The candidates of a part, each by its sequence's number and its own in that."""
        return [(i, k) for i in part.numbers.tolist() for k in range(len(self.entities[i]))]

    def proba(self, chain: Chain, part: SequenceBatch) -> Tensor:
        """(…, K) the probabilities of a part's candidates, in the order of `places`."""
        spans, members = [], []
        for b, i in enumerate(part.numbers.tolist()):
            for start, end, label in self.entities[i]:
                spans.append((b, start, end))
                members.append(self._members(label))
        if not spans:
            return chain.unary.new_zeros(*chain.unary.shape[:-2], 0)
        with numbered(part):
            where, who = torch.tensor(spans), torch.stack(members)
            if self.meaning == "overlap":
                found = overlap_log_prob(chain, where, who)
            else:
                found = span_log_prob(chain, where, who, self._continues)
        return found.exp().clamp_max(1.0)

    def _members(self, label: str) -> Tensor:
        if self.meaning == "boundaries":
            return self._any
        return self._of_type.get(label, self._none)
