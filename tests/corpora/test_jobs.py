"""Files by which a driver and its workers meet."""

import threading

from xling_jax.corpora import jobs


def test_an_error_that_is_not_of_the_input_is_raised_for_the_runner_to_try_again(tmp_path):
    for error, is_raised in [(ValueError("no"), False), (OSError("no"), True), (KeyError(), True)]:
        raised = False
        try:
            with jobs.keeping_error(tmp_path / "part"):
                raise error
        except Exception as again:
            raised = again is error
        assert raised is is_raised
        assert (tmp_path / "part.error").exists()
    with jobs.keeping_error(tmp_path / "part"):
        pass
    assert not (tmp_path / "part.error").exists()


def test_a_file_that_another_machine_wrote_is_waited_for(tmp_path, monkeypatch):
    writer = threading.Timer(0.3, jobs.save, [tmp_path / "late", 1])
    writer.start()
    assert jobs.appears(tmp_path / "late") and jobs.load(tmp_path / "late") == 1
    monkeypatch.setattr(jobs, "_SEEN_WITHIN_S", 0)
    assert not jobs.appears(tmp_path / "never")
