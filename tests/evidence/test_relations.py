"""Relation scores equal a full sort; p-values hold under chance; bad files get one sentence."""

import json

import pytest
import torch

import embspace
from embspace.errors import EmbspaceError
from embspace.evidence.relation_ranks import kth
from embspace.evidence.relation_sets import (
    RelationSet,
    bundled_relations,
    read_relations,
    token_pairs,
)
from embspace.evidence.relations import SIGNIFICANT, ScoringRelations, relations
from embspace.read.reading import Reading

NEXT = RelationSet("next", tuple((f"#{i}", f"#{i + 1}") for i in range(260, 290)))
READINGS = [
    Reading(),
    Reading(source="first-mlp"),
    Reading(source="first-mlp", centre=True, unit=True),
    Reading(norm="folded", centre=True),
    Reading(reading_norm=True, unit=True),
]


@pytest.mark.parametrize("how", READINGS, ids=lambda how: how.name)
@pytest.mark.parametrize("folder", ["tiny_gpt2", "tiny_llama"])
def test_shares_equal_those_of_sorted_rows_of_the_circuit(folder, how, request):
    model = embspace.load(request.getfixturevalue(folder), dtype="float64")
    found = relations(model, [NEXT], reading=how, k=7).relations["next"]
    sources, targets = list(range(260, 290)), list(range(261, 291))
    for layer in range(model.n_layers):
        for head in range(model.n_heads):
            one, other = model.heads[layer, head].circuit("vo", reading=how).factors
            scores = (one.table.double() @ one.matrix.double()) @ (
                other.table.double() @ other.matrix.double()
            ).T
            order = scores[sources].argsort(dim=1, descending=True)
            for name, part in (("promote", order[:, :7]), ("suppress", order[:, -7:])):
                hit = (part == torch.tensor(targets)[:, None]).any(1)
                share = getattr(found, name)[layer][head]
                assert share == pytest.approx(float(hit.double().mean())), (layer, head, name)


@pytest.mark.parametrize("n_columns", [5, 64, 3000, 5001])
def test_the_kth_score_is_the_sorted_rows_kth(n_columns):
    scores = torch.randn(4, n_columns, generator=torch.Generator().manual_seed(1)).round(decimals=1)
    for largest in (True, False):
        rows = scores.sort(dim=1, descending=largest).values
        expected = rows[:, [0, min(10, n_columns) - 1]]
        assert torch.equal(kth(scores, [1, 10], largest=largest), expected)


def test_the_sample_holds_the_facts_its_text_told():
    found = relations(embspace.load("sample-gpt2")).relations
    held = {
        "animal-young": (0, 5),
        "country-capital": (0, 5),
        "trade-tool": (0, 5),
        "country-nationality": (0, 5),
        "capital-country": (3, 3),
    }
    for name, (layer, head) in held.items():
        one = found[name]
        assert one.best() == (layer, head)
        assert one.promote[layer][head] > 0.7 and one.p[layer][head] < SIGNIFICANT


def test_targets_at_random_give_no_relation():
    ids = torch.randperm(3000, generator=torch.Generator().manual_seed(5))[:80] + 1000
    pairs = tuple((f"#{a}", f"#{b}") for a, b in ids.view(40, 2).tolist())
    found = relations(embspace.load("sample-gpt2"), [RelationSet("random", pairs)])
    assert found.relations["random"].n_significant() == 0


def test_equal_targets_are_no_relation():
    """A head that promotes one word after anything holds no relation, whatever its share."""
    model = embspace.load("sample-gpt2")
    always = RelationSet("always", tuple((f"#{i}", "#2000") for i in range(1000, 1060)))
    one = relations(model, [always], k=6000).relations["always"]
    assert {x for row in one.promote for x in row} == {1.0}
    assert {x for row in one.p for x in row} == {1.0}


def test_one_head_shows_what_it_finds_and_what_it_misses():
    model = embspace.load("sample-gpt2")
    scoring = ScoringRelations(model, layers=[0], heads=[5])
    list(scoring)
    found = scoring.of_head()
    shares = [one.promote for one in found]
    assert shares == sorted(shares, reverse=True)
    young = next(one for one in found if one.relation == "animal-young")
    assert ("deer", "fawn") in young.found
    assert len(young.found) + len(young.missed) == young.pairs
    assert len(young.found) / young.pairs == pytest.approx(young.promote)


def test_words_of_several_tokens_and_doubles_are_left_out_and_counted():
    space = embspace.load("sample-gpt2").vocabulary
    given = (("deer", "fawn"), ("deer", "fawn"), ("cow", "calf"), ("cow", "Schadenfreude"))
    found = token_pairs(space, RelationSet("young", given))
    assert found.words == (("deer", "fawn"), ("cow", "calf")) and found.n_split == 1
    assert [space.texts[i] for i in (*found.sources, *found.targets)] == [
        *(" deer", " cow", " fawn", " calf")
    ]


def test_our_own_sets_are_many_large_and_without_doubles():
    sets = bundled_relations()
    assert len(sets) >= 12 and len({one.name for one in sets}) == len(sets)
    for one in sets:
        assert len(one.pairs) >= 40 and one.distinct == one.pairs, one.name
        assert one.k == (1 if one.name == "copying" else None)
        if one.name != "copying":
            assert sum(a == b for a, b in one.pairs) <= len(one.pairs) // 20, one.name


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "\ufeffParis\tFrance\r\n# a comment\r\n\r\n Rome \t Italy\r\n"),
        ("a.csv", '"Paris",France\nRome,Italy\n'),
        ("a.json", '[["Paris", "France"], ["Rome", "Italy"]]'),
        ("a.json", '{"a": {"pairs": [["Paris", "France"], ["Rome", "Italy"]]}}'),
    ],
)
def test_pairs_are_read_from_every_kind_of_file(tmp_path, name, content):
    (tmp_path / name).write_bytes(content.encode("utf8"))
    (found,) = read_relations(tmp_path / name)
    assert found == RelationSet("a", (("Paris", "France"), ("Rome", "Italy")))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.tsv", b"Paris\nRome\n", "line 1: expected a source and a target"),
        ("a.tsv", b"a\tb\tc\n", "line 1"),
        ("a.tsv", b"", "holds no word pairs"),
        ("a.csv", b"# nothing\n", "holds no word pairs"),
        ("a.tsv", b"a\tb\n" * 1_000_000, "1,000,000 pairs"),
        ("a.tsv", b"\xff\xfe\x00a", "UTF-8"),
        ("a.txt", b"a\tb\n", ".tsv, .csv or .json"),
        ("a.json", b"{", "no JSON"),
        ("a.json", b"[" * 100_000, "no JSON"),
        ("a.json", b"{}", "expected"),
        ("a.json", b'{"x": [["a"]]}', "expected a list of [source, target] words"),
        ("a.json", b'{"x": {"pairs": [["a", "b"]], "k": 0}}', "k"),
    ],
)
def test_bad_files_get_one_sentence(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(EmbspaceError) as caught:
        read_relations(tmp_path / name)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_relations_without_pairs_of_single_tokens_are_refused():
    model = embspace.load("sample-gpt2")
    with pytest.raises(EmbspaceError, match="one token"):
        relations(model, [RelationSet("ja", (("猫", "犬"), ("東京", "日本")))])
    with pytest.raises(EmbspaceError, match="rename"):
        relations(model, [NEXT, NEXT])
    with pytest.raises(TypeError, match="sauce"):
        relations(model, [NEXT], sauce="embedding")


def test_json_is_shares_by_layer_and_head(tiny_gpt2):
    model = embspace.load(tiny_gpt2)
    found = json.loads(relations(model, [NEXT]).to_json())
    assert list(found) == ["relations"]
    one = found["relations"]["next"]
    assert list(one) == ["pairs", "k", "promote", "suppress", "p"]
    for key in ("promote", "suppress", "p"):
        assert [len(row) for row in one[key]] == [model.n_heads] * model.n_layers
