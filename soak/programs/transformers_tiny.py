"""A tiny Llama under transformers' Trainer, which saves by itself and resumes when it is told to.

transformers_tiny.py FOLDER STEPS
"""

import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

folder, steps = Path(sys.argv[1]), int(sys.argv[2])


class Counting(TrainerCallback):
    """Say the step, for whoever measures."""

    def on_step_end(self, args, state, control, **_):
        """After the optimizer's step."""
        if state.is_world_process_zero:
            print(f"step {state.global_step}", flush=True)


config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2
)
torch.manual_seed(0)
texts = [{"input_ids": (text := torch.randint(64, (16,))), "labels": text} for _ in range(256)]
arguments = TrainingArguments(
    output_dir=str(folder),
    max_steps=steps,
    save_steps=10,
    per_device_train_batch_size=4,
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
)
trainer = Trainer(LlamaForCausalLM(config), arguments, train_dataset=texts, callbacks=[Counting()])
trainer.train(resume_from_checkpoint=folder.is_dir() and get_last_checkpoint(str(folder)) is not None)
