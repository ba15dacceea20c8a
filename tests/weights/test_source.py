"""Where the name of a model leads."""

import shutil

import embspace


def test_a_folder_with_the_name_of_a_sample_says_that_it_is_meant(tiny_gpt2, tmp_path, monkeypatch):
    shutil.copytree(tiny_gpt2, tmp_path / "sample-gpt2")
    shutil.copytree(tiny_gpt2, tmp_path / "bert-seed1")
    monkeypatch.chdir(tmp_path)
    here = embspace.load("sample-gpt2")
    assert here.n_layers == embspace.load(tiny_gpt2).n_layers
    assert any("not the bundled sample: write ./sample-gpt2" in note for note in here.notes)
    assert not any("write ./" in note for note in embspace.load("./sample-gpt2").notes)
    alias = embspace.load("bert-seed1").notes
    assert any("not the alias of google/multiberts-seed_1" in note for note in alias)
    monkeypatch.chdir("/")
    assert not any("write ./" in note for note in embspace.load("sample-gpt2").notes)
