"""What decides a model's states beside its weights: the settings of its config, its tokenizer."""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model import Model

SMALL = ("*.json", "*.txt", "*.model")  # config, tokenizer and its tables
# What a config says that changes no state of a text: names, training, generation, storage.
IDLE = frozenset(
    {
        *("_name_or_path", "architectures", "auto_map", "transformers_version", "dtype"),
        *("torch_dtype", "use_cache", "output_attentions", "output_hidden_states", "return_dict"),
        *("id2label", "label2id", "problem_type", "task_specific_params", "initializer_range"),
        *("initializer_factor", "is_decoder", "gradient_checkpointing", "pretraining_tp"),
        *("tie_word_embeddings", "vocab_size", "classifier_dropout", "finetuning_task"),
    }
)
IDLE_ENDS = ("_token_id", "dropout", "_pdrop", "_dropout_prob", "_coef")


def settings_of(config: Any) -> dict[str, Any]:
    """Entries of a config that may change what the model computes of a text, as JSON has them."""
    return _without_idle(json.loads(json.dumps(config.to_dict(), default=str)))


def _without_idle(every: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without_idle(value) if isinstance(value, dict) else value
        for name, value in every.items()
        if name not in IDLE and not name.startswith("_") and not name.endswith(IDLE_ENDS)
    }


def difference(recorded: Any, config: Any, name: str = "") -> str | None:
    """The first setting that was recorded with another value than a config has, in words.

    Only of settings that both know: versions of transformers add and rename some.
    """
    mine = config if isinstance(config, dict) else settings_of(config)
    if not isinstance(recorded, dict):
        return None
    for key in sorted(recorded.keys() & mine.keys()):
        one, other, path = recorded[key], mine[key], f"{name}{key}"
        if isinstance(one, dict) and isinstance(other, dict):
            found = difference(one, other, f"{path}.")
            if found:
                return found
        elif one != other:
            return f"{path} {_shown(other)} instead of {_shown(one)}"
    return None


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def beside(folder: Path) -> str:
    """16 hex digits over the small files beside the weights: config, tokenizer, and their like."""
    digest = hashlib.sha256()
    for file in sorted({file for pattern in SMALL for file in folder.glob(pattern)}):
        if not file.name.endswith(".index.json"):
            digest.update(f"|{file.name}|".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def model_key(model: "Model") -> str:
    """What is measured of a model is valid for: its weights, and the small files beside them."""
    return f"{model.checkpoint.fingerprint}-{beside(model.folder)}"
