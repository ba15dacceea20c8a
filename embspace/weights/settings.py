"""What decides a model's states beside its weights: the settings of its config, its tokenizer."""

import hashlib
import json
from pathlib import Path
from typing import Any

from .weights import Weights

SMALL = ("*.json", "*.txt", "*.model")  # config, tokenizer and its tables
# What a config says that changes no state of a text: names, labels, training, generation, what is
# returned beside, storage, and the parts that read images and sound.
IDLE = frozenset(
    {
        *("_name_or_path", "architectures", "auto_map", "transformers_version", "tokenizer_class"),
        *("dtype", "torch_dtype", "use_bfloat16", "torchscript", "pretraining_tp"),
        *("use_cache", "cache_implementation", "gradient_checkpointing", "chunk_size_feed_forward"),
        *("output_attentions", "output_hidden_states", "output_router_logits", "output_scores"),
        *("return_dict", "use_return_dict", "return_dict_in_generate", "tie_last_hidden_states"),
        *("id2label", "label2id", "num_labels", "problem_type", "finetuning_task"),
        *("task_specific_params", "initializer_range", "initializer_factor", "init_std"),
        *("tie_word_embeddings", "vocab_size", "classifier_dropout", "vision_config"),
        *("audio_config", "vision_feature_layer", "vision_feature_select_strategy"),
        *("mm_tokens_per_image", "image_seq_length", "projector_hidden_act"),
        *("max_length", "min_length", "do_sample", "early_stopping", "num_beams", "temperature"),
        *("num_beam_groups", "num_return_sequences", "top_p", "typical_p", "repetition_penalty"),
        *("length_penalty", "diversity_penalty", "no_repeat_ngram_size", "bad_words_ids"),
        *("encoder_no_repeat_ngram_size", "suppress_tokens", "begin_suppress_tokens"),
        *("remove_invalid_values", "exponential_decay_length_penalty"),
    }
)
IDLE_ENDS = (
    "_token_id",
    "_token_index",
    "dropout",
    "_pdrop",
    "_dropout_prob",
    "layerdrop",
    "_coef",
)
IDLE_STARTS = ("_", "summary_")
PAD = "pad_token_id"  # from which these count positions
OFFSET_FROM_PAD = frozenset(
    {
        *("roberta", "xlm-roberta", "xlm-roberta-xl", "roberta-prelayernorm", "camembert"),
        *("longformer", "mpnet", "data2vec-text", "ibert", "xmod", "esm", "luke", "layoutlmv3"),
    }
)


def settings_of(config: Any) -> dict[str, Any]:
    """Entries of a config that may change what the model computes of a text, as JSON has them."""
    return _settings(json.loads(json.dumps(config.to_dict(), default=str)))


def _settings(every: dict[str, Any]) -> dict[str, Any]:
    """The same of one level of a config and of all below it."""
    from_pad = every.get("model_type") in OFFSET_FROM_PAD
    return {
        name: _settings(value) if isinstance(value, dict) else value
        for name, value in every.items()
        if not _idle(name) or (name == PAD and from_pad)
    }


def _idle(name: str) -> bool:
    return name in IDLE or name.startswith(IDLE_STARTS) or name.endswith(IDLE_ENDS)


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


def model_key(model: Weights) -> str:
    """The key of a cached measurement: the weights, and the small files beside them."""
    return f"{model.checkpoint.fingerprint}-{beside(model.folder)}"
