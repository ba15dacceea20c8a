"""What each sample is: its architecture, its seed and how long it is trained."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, PreTrainedModel

N_POSITIONS, N_SHORT = 128, 64  # BERT's are as long as a training row: it learns where words are


@dataclass(frozen=True)
class Recipe:
    """One pre-trained sample; `tokenizer_of` names the sample whose tokenizer it shares."""

    family: str
    seed: int
    width: int
    n_layers: int
    n_heads: int
    n_tokens: int
    learning_rate: float
    n_rows: int
    tokenizer_of: str | None = None
    n_inner: int | None = None  # feed-forward width; narrow ones leave the facts to the heads
    weight_decay: float = 0.1
    n_positions: int = N_POSITIONS


RECIPES = {
    "sample-gpt2": Recipe("gpt2", 11, 160, 4, 8, 5_000_000, 3e-3, 24, n_inner=96, weight_decay=0.5),
    "sample-gpt2-b": Recipe("gpt2", 12, 128, 4, 4, 3_500_000, 2e-3, 24, "sample-gpt2"),
    "sample-bert-a": Recipe("bert", 21, 128, 6, 4, 9_000_000, 1e-3, 32, n_positions=N_SHORT),
    "sample-bert-b": Recipe(
        "bert", 22, 128, 6, 4, 9_000_000, 1e-3, 32, "sample-bert-a", n_positions=N_SHORT
    ),
}


def new_model(recipe: Recipe, n_vocabulary: int) -> PreTrainedModel:
    """Return an untrained model of the recipe's shape; the caller has set the seed."""
    return (_gpt2 if recipe.family == "gpt2" else _bert)(recipe, n_vocabulary)


def _gpt2(recipe: Recipe, n_vocabulary: int) -> GPT2LMHeadModel:
    """Return a GPT-2 without dropout."""
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=n_vocabulary,
            n_positions=recipe.n_positions,
            n_embd=recipe.width,
            n_layer=recipe.n_layers,
            n_head=recipe.n_heads,
            n_inner=recipe.n_inner,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def _bert(recipe: Recipe, n_vocabulary: int) -> BertForMaskedLM:
    """Return a BERT without dropout, its head tied to its embedding."""
    return BertForMaskedLM(
        BertConfig(
            vocab_size=n_vocabulary,
            max_position_embeddings=recipe.n_positions,
            hidden_size=recipe.width,
            num_hidden_layers=recipe.n_layers,
            num_attention_heads=recipe.n_heads,
            intermediate_size=4 * recipe.width,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            pad_token_id=0,
        )
    )
