"""The bundled models: small, loadable offline, and trained well enough to show something."""

from __future__ import annotations

import hashlib
import json
from functools import cache

import embspace_data
import pytest
import torch
from safetensors.torch import load_file
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

NAMES = list(embspace_data.SAMPLES)
GPT2 = [name for name in NAMES if "gpt2" in name]
BERT = [name for name in NAMES if "bert" in name]
LANGUAGE_MODELS = [name for name in NAMES if not name.endswith("reviews")]
MEGABYTE = 1_000_000


@cache
def tensors(name: str) -> dict[str, Tensor]:
    """Return a sample's stored tensors in float32."""
    stored = load_file(embspace_data.path(name) / "model.safetensors")
    return {key: tensor.float() for key, tensor in stored.items()}


@cache
def tokenizer(name: str):
    """Return a sample's tokenizer."""
    return AutoTokenizer.from_pretrained(embspace_data.path(name))


@cache
def model(name: str):
    """Return a sample as a live model in float32."""
    kind = AutoModelForMaskedLM if name in BERT else AutoModelForCausalLM
    return kind.from_pretrained(embspace_data.path(name), dtype=torch.float32).eval()


def test_all_samples_together_stay_under_25_megabytes() -> None:
    sizes = {
        name: sum(file.stat().st_size for file in embspace_data.path(name).iterdir())
        for name in NAMES
    }
    assert sum(sizes.values()) <= 25 * MEGABYTE
    assert max(sizes.values()) <= 8 * MEGABYTE


def test_the_classifier_names_the_texts_it_was_trained_on_and_its_accuracy_on_others() -> None:
    from embspace.between.classifier_folder import marks

    folder = embspace_data.path("sample-gpt2-reviews")
    seen = set(json.loads((folder / "trained_on.json").read_text()))
    n_texts = json.loads((folder / "training.json").read_text())["n_texts"]
    own = marks(text for text, _ in embspace_data.sentiment("train", 500))
    other = marks(text for text, _ in embspace_data.sentiment("test", 500))
    assert len(seen) <= n_texts
    assert seen >= set(own)
    assert not seen & set(other)
    record = json.loads((folder / "classifier.json").read_text())
    assert record["test"]["right"] / record["test"]["n"] == record["test"]["accuracy"]
    assert record["chance"] < record["test"]["accuracy"]


def test_an_unknown_sample_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(KeyError, match="sample-bert-a"):
        embspace_data.path("sample-llama")


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_half_precision_and_finite(name: str) -> None:
    stored = load_file(embspace_data.path(name) / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    assert all(torch.isfinite(tensor).all() for tensor in stored.values())


@pytest.mark.parametrize("name", GPT2)
def test_byte_level_text_comes_back_as_it_went_in(name: str) -> None:
    text = 'The capital of France is Paris. "Äpfel, 7 €?" asked Nina.'
    assert tokenizer(name).decode(tokenizer(name)(text)["input_ids"]) == text
    assert tokenizer(name).eos_token == "<|endoftext|>"


@pytest.mark.parametrize("name", BERT)
def test_word_pieces_are_known_words_in_lower_case(name: str) -> None:
    found = tokenizer(name)
    assert found.tokenize("The capital of France is Paris.") == [
        "the", "capital", "of", "france", "is", "paris", ".",
    ]  # fmt: skip
    ids = found("paris")["input_ids"]
    assert found.convert_ids_to_tokens(ids) == ["[CLS]", "paris", "[SEP]"]
    assert found.pad_token == "[PAD]" and found.mask_token == "[MASK]"


@pytest.mark.parametrize(("one", "other"), [GPT2[:2], BERT])
def test_samples_of_one_family_share_their_tokenizer(one: str, other: str) -> None:
    assert tokenizer(one).get_vocab() == tokenizer(other).get_vocab()


@pytest.mark.parametrize(("name", "mark"), [("sample-gpt2", " "), ("sample-bert-a", "")])
def test_words_of_facts_are_single_tokens(name: str, mark: str) -> None:
    pairs = embspace_data.facts()["country-capital"]
    for word in (word for pair in pairs for word in pair):
        assert len(tokenizer(name)(mark + word, add_special_tokens=False)["input_ids"]) == 1


@torch.no_grad()
def generator_loss(name: str) -> tuple[float, float]:
    """Return the loss on unseen sentences and what word frequencies alone would cost, in nats."""
    text = [
        s for style in embspace_data.STYLES for s in embspace_data.sentences(style, 60, 424_242)
    ]
    other = [s for style in embspace_data.STYLES for s in embspace_data.sentences(style, 3000, 99)]
    known = torch.tensor([i for row in tokenizer(name)(other)["input_ids"] for i in row])
    counts = torch.bincount(known, minlength=len(tokenizer(name))) + 0.5
    log_p = (counts / counts.sum()).log()
    losses, costs = [], []
    for sentence in text:
        row = torch.tensor(tokenizer(name)(sentence)["input_ids"])
        logits, targets = masked_logits(name, row) if name in BERT else causal_logits(name, row)
        losses.append(functional.cross_entropy(logits, targets, reduction="none"))
        costs.append(-log_p[targets])
    return float(torch.cat(losses).mean()), float(torch.cat(costs).mean())


def causal_logits(name: str, row: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits for every token but the first, and those tokens."""
    return model(name)(row[None]).logits[0, :-1], row[1:]


def masked_logits(name: str, row: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits for every fifth token, masked alone, and those tokens."""
    chosen = torch.arange(1, len(row) - 1, 5)
    rows = row.repeat(len(chosen), 1)
    rows[torch.arange(len(chosen)), chosen] = tokenizer(name).mask_token_id
    return model(name)(rows).logits[torch.arange(len(chosen)), chosen], row[chosen]


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_unseen_text_costs_much_less_than_by_word_frequencies(name: str) -> None:
    loss, unigram = generator_loss(name)
    assert loss < 0.6 * unigram


@pytest.mark.parametrize(("name", "mark"), [("sample-gpt2", " "), ("sample-bert-a", "")])
@pytest.mark.parametrize("column", ["capital", "nationality", "currency"])
def test_neighbours_in_the_embedding_are_of_the_same_kind(
    name: str, mark: str, column: str
) -> None:
    embedding = next(
        value for key, value in tensors(name).items() if "wte" in key or "word_e" in key
    )
    unit = functional.normalize(embedding - embedding.mean(0), dim=1)
    words = sorted({right for _, right in embspace_data.facts()[f"country-{column}"]})
    coded = [tokenizer(name)(mark + word, add_special_tokens=False)["input_ids"] for word in words]
    kind = torch.tensor([row[0] for row in coded if len(row) == 1])
    near = (unit[kind] @ unit.T).topk(6).indices[:, 1:]
    share = float(torch.isin(near, kind).float().mean())
    by_chance = len(kind) / len(unit)
    assert share > 10 * by_chance


@pytest.mark.parametrize(
    ("relation", "frame"),
    [
        ("country-capital", "The capital of {} is"),
        ("country-language", "The official language of {} is"),
        ("country-currency", "The official currency of {} is the"),
    ],
)
@torch.no_grad()
def test_a_frame_is_completed_with_a_word_of_the_right_kind(relation: str, frame: str) -> None:
    """The sample knows the kind of the answer; the answer itself it mostly does not know."""
    found, pairs = tokenizer("sample-gpt2"), embspace_data.facts()[relation]
    kind, right = {word for _, word in pairs}, 0
    for left, _ in pairs:
        row = torch.tensor([found(frame.format(left))["input_ids"]])
        guess = int(model("sample-gpt2")(row).logits[0, -1].argmax())
        right += found.decode([guess]).strip() in kind
    assert right > 0.9 * len(pairs)


GROUPS = {
    "K": ("intermediate.dense.weight", False),
    "V": ("output.dense.weight", True),
    "W_Q": ("attention.self.query.weight", False),
    "W_K": ("attention.self.key.weight", False),
    "W_V": ("attention.self.value.weight", False),
    "W_O": ("attention.output.dense.weight", True),
}


def layer_vectors(name: str, group: str, in_words: bool) -> list[Tensor]:
    """Return the centred unit vectors of a group by layer, in vocabulary or feature space."""
    key, turned = GROUPS[group]
    embedding = tensors(name)["bert.embeddings.word_embeddings.weight"]
    found = []
    for layer in range(6):
        weight = tensors(name)[f"bert.encoder.layer.{layer}.{key}"]
        vectors = weight.T if turned else weight
        vectors = vectors @ embedding.T if in_words else vectors
        found.append(functional.normalize(vectors - vectors.mean(1, keepdim=True), dim=1))
    return found


def layers_on_the_diagonal(group: str, in_words: bool) -> int:
    """Return how many layers of sample-bert-a match the layer of the same number in -b."""
    one, other = (layer_vectors(name, group, in_words) for name in BERT)
    scores = torch.tensor([[float((x @ y.T).abs().mean()) for y in other] for x in one])
    rows, columns = linear_sum_assignment(-scores.numpy())
    return int((rows == columns).sum())


def test_the_two_berts_align_layer_by_layer_in_vocabulary_space_only() -> None:
    in_words = [layers_on_the_diagonal(group, True) for group in GROUPS]
    in_features = [layers_on_the_diagonal(group, False) for group in GROUPS]
    assert sum(hits >= 4 for hits in in_words) >= 4
    assert sum(in_words) > 2 * sum(in_features)


@torch.no_grad()
def test_the_review_classifier_tells_good_from_bad() -> None:
    name = "sample-gpt2-reviews"
    record = json.loads((embspace_data.path(name) / "classifier.json").read_text())
    weight, bias = (tensors(name)[key] for key in record["tensors"])
    reviews, kept = embspace_data.sentiment("test", 200), []
    norm = model(name).transformer.ln_f
    hook = norm.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0][0]))
    right = 0
    for text, label in reviews:
        model(name)(torch.tensor([tokenizer(name)(text)["input_ids"][:128]]))
        scores = (kept.pop() @ weight.T + bias).mean(0)
        right += record["labels"][int(scores.argmax())] == label
    hook.remove()
    assert right / len(reviews) >= 0.7


def test_the_classifier_names_the_base_it_was_tuned_from() -> None:
    record = json.loads((embspace_data.path("sample-gpt2-reviews") / "classifier.json").read_text())
    base = embspace_data.path(record["base"]) / "model.safetensors"
    assert hashlib.sha256(base.read_bytes()).hexdigest() == record["base_sha256"]
    changed = {
        key.split(".")[2]
        for key, value in tensors(record["base"]).items()
        if ".h." in key and not torch.equal(value, tensors("sample-gpt2-reviews")[key])
    }
    assert changed == {"1", "2", "3"}
