"""The network of PairRM; its parameters are named as in the checkpoint llm-blender/PairRM-hf."""

import torch
from torch import nn
from transformers import DebertaV2Config, DebertaV2Model
from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2PreTrainedModel


class PairNetwork(DebertaV2PreTrainedModel):  # type: ignore[no-untyped-call]
    """DeBERTa-v2 with a head that scores each candidate of a pair beside the source.

    `config` has n_tasks and drop_out besides DeBERTa's own fields.
    """

    def __init__(self, config: DebertaV2Config) -> None:
        super().__init__(config)
        hidden = config.hidden_size
        self.pretrained_model = DebertaV2Model(config)
        self.head_layer = nn.Sequential(
            nn.Dropout(config.drop_out),
            nn.Linear(2 * hidden, hidden),
            nn.Tanh(),
            nn.Dropout(config.drop_out),
            nn.Linear(hidden, config.n_tasks),
        )
        self.post_init()  # type: ignore[no-untyped-call]

    def states(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the encoder's last hidden states, shape [pairs, tokens, hidden].

        Args:
            ids: shape [pairs, tokens].
            mask: 1 for a token, 0 for padding; shape [pairs, tokens].
        """
        encoded: torch.Tensor = self.pretrained_model(ids, attention_mask=mask).last_hidden_state
        return encoded

    def scores(self, states: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Return s_left and s_right of each task, shape [pairs, 2, tasks].

        Args:
            states: shape [pairs, tokens, hidden].
            places: where the three prefixes stand, shape [pairs, 3].
        """
        rows = torch.arange(len(states), device=states.device).unsqueeze(1)
        source, left, right = states[rows, places].unbind(1)
        beside = torch.stack([torch.cat([source, left], -1), torch.cat([source, right], -1)], 1)
        scored: torch.Tensor = self.head_layer(beside)
        return scored

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Return l(1, 2) = s_left - s_right, the mean over the tasks; shape [pairs]."""
        left, right = self.scores(self.states(ids, mask), places).float().unbind(1)
        return (left - right).mean(-1)
