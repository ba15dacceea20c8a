"""Sub-modules made linear from a block on."""

import embspace
from embspace.mapping.maps import Maps


def test_linear_parts_whose_states_overflow_have_no_figures_and_are_named(
    tiny_gpt2, corpus, monkeypatch
):
    model = embspace.load(str(tiny_gpt2))
    apply = Maps.apply

    def growing(self, x, source, target=None):
        huge = 1e38 if str(source) == "1.ff.in" else 1.0
        return apply(self, x, source, target) * huge * huge

    monkeypatch.setattr(Maps, "apply", growing)
    found = embspace.submodules(model, corpus, layers=[1, 2], rows=8)
    assert [one.layer for one in found.parts["ff"]] == [2]
    assert [one.layer for one in found.parts["attn"]] == [1, 2]
    assert any("feed-forward layers linear from block 1 on" in note for note in found.notes)
