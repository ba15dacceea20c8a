"""Encoders: where each family keeps its matrices."""

from dataclasses import replace

from .family import Family, Transform

BERT = Family(
    types=("bert",),
    base=("bert.", ""),
    embedding="embeddings.word_embeddings",
    embed_norm="embeddings.LayerNorm",
    block="encoder.layer.{l}",
    final_norm=None,
    q="attention.self.query",
    k="attention.self.key",
    v="attention.self.value",
    o="attention.output.dense",
    up="intermediate.dense",
    down="output.dense",
    attn_add="attention.output.LayerNorm",
    ff_add="output.LayerNorm",
    causal=False,
    head="cls.predictions.decoder",
    head_bias="cls.predictions.bias|cls.predictions.decoder.bias",
    transform=Transform(
        dense="cls.predictions.transform.dense", norm="cls.predictions.transform.LayerNorm"
    ),
)
ROBERTA = replace(
    BERT,
    types=("roberta", "xlm-roberta", "camembert"),
    base=("roberta.", ""),
    head="lm_head.decoder",
    head_bias="lm_head.bias|lm_head.decoder.bias",
    transform=Transform(dense="lm_head.dense", norm="lm_head.layer_norm", activation="gelu"),
)
MPNET = replace(
    ROBERTA,
    types=("mpnet",),
    base=("mpnet.", ""),
    q="attention.attn.q",
    k="attention.attn.k",
    v="attention.attn.v",
    o="attention.attn.o",
    attn_add="attention.LayerNorm",
    positions="relative",
)
ELECTRA = replace(
    BERT,
    types=("electra",),
    base=("electra.", ""),
    project_in="embeddings_project",
    head="generator_lm_head",
    head_bias="generator_lm_head.bias",
    transform=Transform(
        dense="generator_predictions.dense",
        norm="generator_predictions.LayerNorm",
        activation="gelu",
    ),
)
ALBERT = replace(
    BERT,
    types=("albert",),
    base=("albert.", ""),
    block="encoder.albert_layer_groups.{group}.albert_layers.0",
    project_in="encoder.embedding_hidden_mapping_in",
    q="attention.query",
    k="attention.key",
    v="attention.value",
    o="attention.dense",
    up="ffn",
    down="ffn_output",
    attn_add="attention.LayerNorm",
    ff_add="full_layer_layer_norm",
    head="predictions.decoder",
    head_bias="predictions.bias|predictions.decoder.bias",
    transform=Transform(dense="predictions.dense", norm="predictions.LayerNorm"),
)
DISTILBERT = replace(
    BERT,
    types=("distilbert",),
    base=("distilbert.", ""),
    block="transformer.layer.{l}",
    q="attention.q_lin",
    k="attention.k_lin",
    v="attention.v_lin",
    o="attention.out_lin",
    up="ffn.lin1",
    down="ffn.lin2",
    eps=1e-12,
    attn_add="sa_layer_norm",
    ff_add="output_layer_norm",
    head="vocab_projector",
    head_bias="vocab_projector.bias",
    transform=Transform(dense="vocab_transform", norm="vocab_layer_norm"),
)
MODERN_HEAD = Transform(dense="head.dense", norm="head.norm")
MODERNBERT = Family(
    types=("modernbert",),
    base=("model.", ""),
    embedding="embeddings.tok_embeddings",
    embed_norm="embeddings.norm",
    block="layers.{l}",
    final_norm="final_norm",
    qkv="attn.Wqkv",
    o="attn.Wo",
    gate_up="mlp.Wi",
    down="mlp.Wo",
    attn_norm="attn_norm",
    ff_norm="mlp_norm",
    bare_first=True,
    positions="rotary",
    causal=False,
    head="decoder",
    head_bias="decoder.bias",
    transform=MODERN_HEAD,
    adapt=lambda config: {
        "transform": replace(MODERN_HEAD, activation=config.classifier_activation)
    },
)
# transform -> where a head with that transform keeps its decoder and bias
HEADS: dict[Transform, dict[str, str]] = {
    family.transform: {"head": family.head, "head_bias": family.head_bias}
    for family in (BERT, ROBERTA, ELECTRA, ALBERT, DISTILBERT, MODERNBERT)
    if family.transform
}
