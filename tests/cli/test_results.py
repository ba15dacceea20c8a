"""What commands print is what the API returns."""

import csv
import dataclasses
import io
import json

import pytest

import embspace
from embspace.errors import EmbspaceError
from embspace.live.findings import Claim
from embspace.read.neurons import read_neurons, sharpest


@pytest.fixture(scope="module")
def model(tiny_gpt2):
    return embspace.load(tiny_gpt2)


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_json_of_one_head_is_the_result(run, tiny_gpt2, model):
    found = run("heads", tiny_gpt2, "--layer", 1, "--head", 2, "--circuit", "vo", "-k", 7, "--json")
    expected = model.heads[1, 2].vo.top_pairs(7)
    assert json.loads(found.stdout) == expected.to_dict()
    assert found.stdout.strip() == expected.to_json()


def test_json_of_options_is_the_result(run, tiny_gpt2, model):
    options = ("--norm", "folded", "--inverse", "pinv", "--filter", "ascii", "--smallest")
    where = ("heads", tiny_gpt2, "--layer", 0, "--head", 1, "--circuit", "qk", "--exclude-same")
    found = run(*where, *options, "--json")
    circuit = model.heads[0, 1].circuit("qk", norm="folded", inverse="pinv")
    expected = circuit.top_pairs(filters=["ascii"], smallest=True, exclude_same=True)
    assert json.loads(found.stdout) == expected.to_dict()


def test_pairs_of_one_word_are_left_out_on_request(run, tiny_gpt2, model):
    where = ("heads", tiny_gpt2, "--layer", 0, "--head", 1, "--circuit", "vo")
    found = run(*where, "--exclude-same-word", "--json")
    expected = model.heads[0, 1].vo.top_pairs(exclude_same="word")
    assert json.loads(found.stdout) == expected.to_dict()
    assert "no pairs of one word" in run(*where, "--exclude-same-word").stdout


def test_json_of_all_heads_is_the_survey(run, tiny_gpt2, model):
    found = json.loads(run("heads", tiny_gpt2, "--json").stdout)
    assert found == {"heads": [result.to_dict() for result in model.survey()]}
    assert len(found["heads"]) == 3 * 4 * 2


def test_a_layer_or_a_head_narrows_the_survey(run, tiny_gpt2):
    layer = json.loads(run("heads", tiny_gpt2, "--layer", 1, "--json").stdout)["heads"]
    head = json.loads(run("heads", tiny_gpt2, "--head", 3, "--json").stdout)["heads"]
    assert {x["layer"] for x in layer} == {1} and {x["head"] for x in layer} == {0, 1, 2, 3}
    assert {x["head"] for x in head} == {3} and {x["layer"] for x in head} == {0, 1, 2}


def test_a_token_is_read_on_both_sides_of_both_circuits(run, tiny_gpt2, model):
    where = ("heads", tiny_gpt2, "--layer", 1, "--head", 2, "-k", 5)
    found = json.loads(run(*where, "--token", "#65", "--json").stdout)["heads"]
    head = model.heads[1, 2]
    expected = [side for c in (head.vo, head.qk) for side in (c.row("#65", 5), c.column("#65", 5))]
    assert found == [result.to_dict() for result in expected]


def test_spellings_of_several_tokens_are_said(run, tiny_gpt2):
    found = run("heads", tiny_gpt2, "--layer", 0, "--head", 0, "--token", "the")
    assert found.exit_code == 0
    assert " the" in found.stderr or "the" in found.stdout


def test_distance_reaches_qk_only(run, tiny_llama):
    where = ("heads", tiny_llama, "--layer", 0, "--head", 0, "--json")
    found = json.loads(run(*where, "--distance", 3).stdout)["heads"]
    assert [x["settings"]["distance"] for x in found] == [None, 3]


def test_rotary_models_say_at_which_distance(run, tiny_llama):
    where = ("heads", tiny_llama, "--layer", 0, "--head", 0)
    assert "relative distance 0" in run(*where).stdout
    apart = run(*where, "--distance", 3).stdout
    assert "relative distance 3" in apart and "relative distance 0" not in apart
    assert "relative distance" not in run(*where, "--circuit", "vo").stdout


def test_csv_of_a_survey_round_trips(run, tiny_gpt2, model, tmp_path):
    found = run("heads", tiny_gpt2, "--csv", tmp_path / "pairs.csv")
    assert found.exit_code == 0 and found.stdout == "" and "pairs.csv" in found.stderr
    rows = table((tmp_path / "pairs.csv").read_text(encoding="utf8"))
    expected = [row for result in model.survey() for row in result.rows()]
    assert [(r["layer"], r["i"], r["j"]) for r in rows] == [
        (str(r["layer"]), str(r["i"]), str(r["j"])) for r in expected
    ]
    assert [float(r["score"]) for r in rows] == [r["score"] for r in expected]


def test_csv_of_awkward_tokens_round_trips(run, awkward):
    model = embspace.load(awkward)
    text = run("vectors", awkward, "--group", "o", "--layer", 0, "--head", 1, "--csv", "-").stdout
    assert text.count("vector,end") == 1
    labels = {row["token"].removeprefix("'") for row in table(text)}
    assert labels <= set(model.vocabulary.labels)
    assert not any(row["token"].startswith(("=", "-", "@")) for row in table(text))


def test_json_of_a_neuron_is_the_result(run, tiny_llama):
    found = run("ff", tiny_llama, "--layer", 1, "--neuron", 5, "-k", 6, "--json")
    expected = read_neurons(embspace.load(tiny_llama).ff[1].read(), [5], 6)[0]
    assert json.loads(found.stdout) == expected.to_dict()
    assert set(expected.vectors) == {"gate", "up", "value"}


def test_a_layer_shows_its_sharpest_neurons_first(run, tiny_gpt2, model):
    where = ("ff", tiny_gpt2, "--layer", 1, "--limit", 6, "--json")
    found = json.loads(run(*where).stdout)["neurons"]
    assert [x["neuron"] for x in found] == sharpest(model.ff[1], 6)
    everyone = read_neurons(model.ff[1], range(52), 1)
    assert found[0]["peak"] == pytest.approx(max(neuron.peak for neuron in everyone))
    peaks = [x["peak"] for x in found]
    assert peaks == sorted(peaks, reverse=True)


def test_json_of_related_neurons_is_the_result(run, tiny_gpt2, model):
    one = json.loads(run("ff", tiny_gpt2, "--related", "--layer", 2, "--json").stdout)
    assert one == model.related(2).to_dict()
    either = run("ff", tiny_gpt2, "--related", "--absolute", "--layer", 2, "--json").stdout
    assert json.loads(either) == model.related(2, absolute=True).to_dict()
    every = json.loads(run("ff", tiny_gpt2, "--related", "--json").stdout)
    assert every["layers"][2] == one and len(every["layers"]) == 3


def test_related_lists_the_share_of_every_layer(run, tiny_gpt2):
    shown = run("ff", tiny_gpt2, "--related").stdout
    assert "shuffled" in shown and "mean over layers" in shown


def test_json_of_a_token_is_the_result(run, tiny_gpt2, model):
    one = json.loads(run("token", tiny_gpt2, "#65", "-k", 4, "--json").stdout)
    assert one == model.token("#65", 4)[0].to_dict()
    two = json.loads(run("token", tiny_gpt2, "#65", "#66", "-k", 4, "--json").stdout)
    assert [x["id"] for x in two["tokens"]] == [65, 66]


def test_json_of_vectors_is_the_result(run, tiny_gpt2, model):
    where = ("vectors", tiny_gpt2, "--group", "k", "--layer", 2, "--head", 1, "-k", 3, "--json")
    group = model.vectors(2, 1, "k")
    assert json.loads(run(*where, "--index", 4).stdout) == group[4].top_tokens(3).to_dict()
    every = json.loads(run(*where).stdout)["vectors"]
    assert every == [result.to_dict() for result in group.top_tokens(3)]


def test_check_proves_a_model(run, tiny_gpt2):
    found = run("check", tiny_gpt2, "--json")
    certificate = json.loads(found.stdout)
    assert found.exit_code == 0 and certificate["passed"] is True
    assert certificate["layers"] == [0, 1, 2]
    some = json.loads(run("check", tiny_gpt2, "--layers", "0,2-2", "--json").stdout)
    assert some["layers"] == [0, 2]


def test_a_certificate_leaves_as_every_result_does(run, tiny_gpt2, model, tmp_path):
    certificate = embspace.certify(model)
    assert json.loads(run("check", tiny_gpt2, "--json").stdout) == certificate.to_dict()
    rows = table(run("check", tiny_gpt2, "--csv", "-").stdout)
    assert [row["what"] for row in rows] == [claim.what for claim in certificate.claims]
    assert [float(row["error"]) for row in rows] == [c.error for c in certificate.claims]
    assert run("check", tiny_gpt2, "--csv", tmp_path / "c.csv").exit_code == 0
    assert table((tmp_path / "c.csv").read_text()) == rows
    assert "certificate passed" in str(certificate) and "attention output" in str(certificate)
    assert "certificate passed" in certificate._repr_html_()


def test_an_error_without_end_is_text_in_json_and_csv(model):
    worst = Claim("logits", float("inf"), None, 1e-5, False)
    certificate = dataclasses.replace(embspace.certify(model), claims=(worst,))
    assert json.loads(certificate.to_json())["claims"][0]["error"] == "inf"
    assert table(certificate.to_csv())[0]["error"] == "inf" and not certificate.passed


def test_check_leaves_with_1_where_the_reading_is_wrong(run, tiny_gpt2, monkeypatch):
    from embspace.weights import attention

    right = attention.split_slabs
    swapped = {"q": "k", "k": "q", "v": "v"}
    monkeypatch.setattr(attention, "split_slabs", lambda r, w, s: right(r, swapped[w], s))
    found = run("check", tiny_gpt2)
    assert found.exit_code == 1 and "FAILED" in found.stdout


def test_models_says_what_a_name_stands_for(run, tiny_gpt2):
    names = ("bert-seed7", "sample-gpt2", tiny_gpt2, "no-such/model")
    found = json.loads(run("models", *names, "--json").stdout)["models"]
    assert [x["kind"] for x in found] == ["alias", found[1]["kind"], "folder", "Hub name"]
    assert found[0]["stands_for"] == "google/multiberts-seed_7"
    assert found[2]["here"] and found[2]["architecture"] == "gpt2" and found[2]["read"] == "by name"
    assert not found[3]["here"]


def test_models_lists_everything_that_can_be_named(run):
    found = json.loads(run("models", "--json").stdout)
    assert {"samples", "aliases", "architectures", "hub_cache", "embspace_cache"} == set(found)
    assert {"gpt2", "llama", "bert"} <= set(found["architectures"])
    assert run("models").exit_code == 0


@pytest.fixture(scope="module")
def mixture(save_model):
    """A mixture of three experts a layer."""
    from transformers import MixtralConfig

    config = MixtralConfig(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=3,
        initializer_range=0.5,
        bos_token_id=0,
        eos_token_id=0,
    )
    return save_model(config)


def test_experts_are_read_one_by_one(run, mixture):
    where = ("ff", mixture, "--layer", 1, "--neuron", 4, "--json")
    one = json.loads(run(*where, "--expert", 2).stdout)
    every = json.loads(run(*where).stdout)["neurons"]
    assert one["expert"] == 2 and [x["expert"] for x in every] == [0, 1, 2]
    assert every[2] == one
    survey = json.loads(run("ff", mixture, "--limit", 1, "--json").stdout)["neurons"]
    assert [(x["layer"], x["expert"]) for x in survey] == [(n, e) for n in (0, 1) for e in range(3)]
    assert "expert 2 neuron 4" in run(*where[:-1]).stdout
    assert run(*where, "--expert", 7).exit_code == 1


def test_a_mixture_read_without_an_expert_is_told_which_there_are(mixture):
    with pytest.raises(EmbspaceError, match=r"is a mixture: name one of its experts \(0 to 2\)"):
        embspace.load(mixture).ff[1].groups()
