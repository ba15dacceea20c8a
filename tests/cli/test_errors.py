"""Whatever goes wrong is one line on stderr and an exit code; nothing else."""

import functools

import pytest
import torch

import embspace


def fails(result, code: int = 1) -> str:
    """The message of a run that must fail with a code, printing nothing on stdout."""
    assert result.exit_code == code, result.output
    assert result.stdout == "" and "Traceback" not in result.stderr
    if code == 1:
        lines = [line for line in result.stderr.splitlines() if not line.startswith("note:")]
        assert len(lines) == 1 and lines[0].startswith("error: "), result.stderr
    return result.stderr


HEAD = ("--layer", 0, "--head", 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--layer", 9), "layer 9"),
        (("--layer", -1), "layer -1"),
        (("--layer", 0, "--head", 17), "head 17"),
        ((*HEAD, "--filter", "letters"), "letters"),
        ((*HEAD, "--filter", "re:("), "regular expression"),
        ((*HEAD, "--filter", "file:missing.txt"), "missing.txt"),
        ((*HEAD, "--token", "#100000"), "100000"),
        ((*HEAD, "--token", "unpronounceable"), "not one token"),
        ((*HEAD, "--distance", 2), "rotary"),
        ((*HEAD, "--device", "abacus"), "abacus"),
    ],
    ids=str,
)
def test_wrong_values_are_one_line(run, tiny_gpt2, arguments, said):
    assert said in fails(run("heads", tiny_gpt2, *arguments))


@pytest.mark.parametrize("command", ["heads", "ff", "check"])
def test_a_wrong_path_is_one_line(run, in_folder, command):
    assert "nowhere" in fails(run(command, "./nowhere"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("ff", "--layer", 0, "--neuron", 99),
        ("ff", "--layer", 0, "--expert", 3),
        ("vectors", "--group", "q", "--layer", 0, "--head", 0, "--index", 8),
        ("token", "unpronounceable"),
        ("check", "--layers", "0-7"),
        ("check", "--layers", "0-999999999999"),
        ("vectors", "--group", "q", "--layer", 0, "--head", 0, "--filter", "letters"),
    ],
    ids=str,
)
def test_what_does_not_exist_is_one_line(run, tiny_gpt2, arguments):
    command, *rest = arguments
    fails(run(command, tiny_gpt2, *rest))


@pytest.mark.parametrize(
    "arguments",
    [
        ("heads", "--circuit", "oq"),
        ("heads", "--source", "mlp"),
        ("heads", "--common", "few"),
        ("heads", "--top", 0),
        ("heads", "--json", "--csv", "x.csv"),
        ("heads", "--circuit", "vo", "--distance", 1),
        ("ff", "--neuron", 3),
        ("ff", "--related", "--filter", "ascii"),
        ("ff", "--absolute"),
        ("vectors", "--layer", 0),
        ("token",),
        ("check", "--layers", "a-b"),
        ("check", "--layers", "2-1"),
        ("check", "--no-check"),
        ("heads", ""),
        ("heads", "--csv", ""),
        ("token", "sample-gpt2"),
        ("token", "bert-seed3"),
        ("ff", "--layer", 0, "--neuron", 1, "--limit", 2),
        ("haeds",),
        ("--colour",),
    ],
    ids=str,
)
def test_wrong_usage_is_2_with_a_hint(run, arguments):
    assert "Error" in fails(run(*arguments), code=2)


def test_a_near_miss_is_named(run):
    assert "heads" in fails(run("haeds"), code=2)


def test_debug_shows_the_traceback(run, tiny_gpt2):
    for arguments in (("--debug", "heads", tiny_gpt2), ("heads", tiny_gpt2, "--debug")):
        result = run(*arguments, "--layer", 9)
        assert isinstance(result.exception, embspace.EmbspaceError)
    fails(run("heads", tiny_gpt2, "--layer", 9))  # and is forgotten by the next run


def test_a_bug_is_one_line_too(run, tiny_gpt2, monkeypatch):
    monkeypatch.setattr(embspace, "load", lambda *_, **__: 1 / 0, raising=False)
    assert "ZeroDivisionError" in fails(run("heads", tiny_gpt2))


def test_an_interrupt_is_130_and_silent(run, tiny_gpt2, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(embspace, "load", interrupted, raising=False)
    result = run("heads", tiny_gpt2)
    assert result.exit_code == 130 and result.stderr.strip() == ""


def test_a_swallowed_interrupt_is_130_too(run, tiny_gpt2, monkeypatch):
    from embspace_cli import interrupt

    def swallowed(*_, **__):
        interrupt._seen.append(2)
        raise ImportError("Could not import module")

    monkeypatch.setattr(interrupt, "_seen", [])
    monkeypatch.setattr(embspace, "load", swallowed, raising=False)
    result = run("heads", tiny_gpt2)
    assert result.exit_code == 130 and result.stderr.strip() == ""


@pytest.mark.parametrize("arguments", [(), ("--json",)], ids=str)
def test_a_failure_at_the_first_result_prints_nothing(run, tiny_gpt2, monkeypatch, arguments):
    from embspace.read.circuits import HeadCircuit

    def fails_at_once(*_, **__):
        raise embspace.EmbspaceError("no pairs.")

    monkeypatch.setattr(HeadCircuit, "top_pairs", fails_at_once)
    fails(run("heads", tiny_gpt2, *arguments))


def test_what_does_not_exist_is_refused_before_the_proof(run, tiny_gpt2, monkeypatch):
    from embspace.live import certificate as certify

    monkeypatch.setattr(certify, "require", lambda model: pytest.fail("proved first"))
    for command, *rest in (
        ("heads", "--head", 17),
        ("heads", "--filter", "letters"),
        ("heads", "--token", "#100000"),
        ("ff", "--layer", 9),
        ("ff", "--filter", "letters"),
        ("vectors", "--group", "q", "--layer", 0, "--head", 9),
        ("token", "#100000"),
    ):
        fails(run(command, tiny_gpt2, *rest))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("align", "--words", 3), "--states"),
        (("align", "--states", "--text", "nowhere.txt"), "nowhere.txt"),
        (("diff", "sample-gpt2"), "two models"),
        (("finetune", "--data", "nowhere", "--out", "x"), "no labelled texts"),
        (("finetune", "--data", "sample", "--out", "a/b"), "no folder"),
        (("stitch", "--data", "nowhere"), "no labelled texts"),
        *(
            ((name, "--text", "nowhere.txt"), "no text")
            for name in ("fit", "score", "lens", "exit")
        ),
        (("transfer", "--other", "nowhere.txt"), "no text"),
        (("evidence", "trust", "--text", "nowhere.txt"), "no text"),
        (("reproduce", "jump", "--text", "nowhere.txt"), "no text"),
        (("fit", "--kind", "refined", "--pairs", "all"), "--pairs all"),
        (("lens", "--compare", "--track", "s"), "--track"),
        (("evidence", "pairs", "--plot", "x.gif"), "x.gif"),
        (("reproduce", "embedding", "--weights-only", "--text", "a"), "--weights-only"),
    ],
    ids=str,
)
def test_what_the_arguments_decide_is_refused_before_a_model_is_opened(
    run, in_folder, monkeypatch, arguments, said
):
    monkeypatch.setattr(embspace, "load", lambda *_, **__: pytest.fail("opened"), raising=False)
    found = run(*arguments)
    assert found.exit_code in (1, 2) and said in found.stderr and found.stdout == ""


def test_one_bad_word_does_not_keep_others_from_being_read(run, tiny_gpt2):
    result = run("token", tiny_gpt2, "#65", "#100000", "#66", "-k", 2)
    assert result.exit_code == 1 and "100000" in result.stderr
    assert "(id 65)" in result.stdout and "(id 66)" in result.stdout


def test_a_csv_that_cannot_be_written_is_one_line(run, tiny_gpt2, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    fails(run("heads", tiny_gpt2, *HEAD, "--csv", blocked / "x.csv"))


def test_an_interrupted_csv_leaves_no_file(run, tiny_gpt2, tmp_path, monkeypatch):
    from embspace.read.circuits import HeadCircuit

    top_pairs, calls = HeadCircuit.top_pairs, []

    @functools.wraps(top_pairs)  # whose signature says which options there are
    def stops(self, *arguments, **options):
        calls.append(1)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return top_pairs(self, *arguments, **options)

    monkeypatch.setattr(HeadCircuit, "top_pairs", stops)
    assert run("heads", tiny_gpt2, "--csv", tmp_path / "x.csv").exit_code == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "way_out"),
    [
        (("heads",), "--filter"),
        (("ff",), "--layer"),
        (("vectors", "--group", "o", "--layer", 0, "--head", 0), "--dtype"),
        (("token", "#65"), "memory"),
    ],
    ids=str,
)
def test_too_little_memory_is_refused_before_the_work(
    run, tiny_gpt2, monkeypatch, arguments, way_out
):
    from embspace import memory

    monkeypatch.setattr(memory, "free_memory", lambda device=None: 1000)
    command, *rest = arguments
    assert way_out in fails(run(command, tiny_gpt2, *rest))


def test_an_unproved_reading_is_refused_unless_asked(run, tiny_gpt2, monkeypatch):
    from embspace.live import certificate as certify

    def refuses(model):
        raise embspace.errors.CertificateError("our reading is wrong.")

    monkeypatch.setattr(certify, "require", refuses)
    assert "--no-check" in fails(run("heads", tiny_gpt2, *HEAD))
    assert run("heads", tiny_gpt2, *HEAD, "--no-check").exit_code == 0


def test_a_model_that_cannot_run_is_read_with_a_note(run, tiny_gpt2, monkeypatch):
    from embspace.live import certificate as certify

    def refuses(model):
        raise embspace.errors.ResourceError("80 GB are needed.")

    monkeypatch.setattr(certify, "require", refuses)
    result = run("heads", tiny_gpt2, *HEAD)
    assert result.exit_code == 0 and "without proof" in result.stderr


def test_long_work_is_announced(run, tiny_gpt2, monkeypatch):
    from embspace.read import forecast as needs

    monkeypatch.setattr(needs, "flops_per_second", lambda: 1e3)
    assert "needs up to" in run("heads", tiny_gpt2, "--layer", 0).stderr
    monkeypatch.setattr(needs, "flops_per_second", lambda: 1e15)
    assert run("heads", tiny_gpt2, "--layer", 0).stderr == ""


def test_cuda_is_refused_where_there_is_none(run, tiny_gpt2):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert "CUDA" in fails(run("heads", tiny_gpt2, "--device", "cuda"))


@pytest.mark.parametrize(
    ("message", "command", "said"),
    [
        (
            "give text=FILE, or run_dtype=float64.",
            "fit",
            "give --text FILE, or --run-dtype float64.",
        ),
        ("or leave out resume=True.", "fit", "or leave out --resume."),
        ("give seed=1.", "heads", "give seed=1."),  # which has no such option
        ("'context=3' is none", "fit", "'context=3' is none"),
    ],
)
def test_parameters_in_messages_are_spelled_as_the_commands_options(
    run, monkeypatch, message, command, said
):
    def fails_so(*_, **__):
        raise embspace.EmbspaceError(message)

    monkeypatch.setattr(embspace, "load", fails_so, raising=False)
    assert fails(run(command)).strip() == f"error: {said}"
