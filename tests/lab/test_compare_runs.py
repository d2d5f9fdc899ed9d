"""lab/experiments/compare_runs.py."""

import json

import pytest

from tests.lab.scripts import script


def test_compared_runs_keep_their_lines_and_names_apart(tmp_path, capsys):
    """Seven runs, two of them of one name and one given twice."""
    workdirs = [tmp_path / place / "s0" for place in "ab"] + [tmp_path / f"c{i}" for i in range(5)]
    for step, workdir in enumerate(workdirs, 1):
        workdir.mkdir(parents=True)
        record = {"step": 4, "pud/p_at_1": step / 10, "train/translation_loss": 1.0}
        (workdir / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    words = [*map(str, workdirs), f"{workdirs[0]}/"]
    with script("experiments/compare_runs.py") as compare_runs:
        compare_runs.main([*words, "--output", str(tmp_path / "plot.svg")])
        rows = [
            line.split()[1:4:2] for line in capsys.readouterr().out.splitlines() if "| " in line
        ]
        curves = ["--output", str(tmp_path / "curves.svg"), "--tokens"]
        compare_runs.main([*words, *curves, *["250000"] * 7])
        with pytest.raises(SystemExit):
            compare_runs.main([*words, *curves, "250000"])
        assert "one number for each of the 7 workdirs" in capsys.readouterr().err
        with pytest.raises(SystemExit):
            compare_runs.main([*words, str(tmp_path / "typo")])
    assert "typo: no measurements in metrics.jsonl" in capsys.readouterr().err
    names = [f"{w.parent.name}/{w.name}" for w in workdirs]
    assert rows[-7:] == [[name, f"{i}0.0"] for i, name in enumerate(names, 1)]
    plot = (tmp_path / "plot.svg").read_text()
    assert all(f"<!-- {name} -->" in plot for name in names)  # of the legend
    curves = (tmp_path / "curves.svg").read_text()
    assert "<!-- million tokens a side -->" in curves and "translation loss" not in curves
