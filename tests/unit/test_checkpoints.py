"""Reading back what the attempts before a kill had logged."""

import math
from pathlib import Path

from infra.trainers.checkpoints import read_losses


def test_losses_of_earlier_attempts_come_back_by_step_even_when_one_is_nan(tmp_path: Path) -> None:
    log = '[{"step": 1, "loss": 0.5}, {"step": 2, "loss": NaN}, {"step": 2, "train_runtime": 3.0}]'
    (tmp_path / "trainer_state.json").write_text(f'{{"log_history": {log}}}')

    losses = read_losses(tmp_path)

    assert list(losses) == [1, 2]
    assert losses[1] == 0.5
    assert math.isnan(losses[2])
