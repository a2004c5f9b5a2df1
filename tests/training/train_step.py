"""One training step on each of sft.jsonl, dpo.jsonl and kto.jsonl of a folder, with a tiny random model. Run by scripts/test-training.

  python train_step.py FOLDER
"""
import pathlib
import sys

import torch
from datasets import load_dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer

# As chat templates of models with tools have it: tools first, then messages, calls as JSON.
TEMPLATE = (
    "{%- if tools %}<tools>{{ tools | tojson }}</tools>\n{% endif -%}"
    "{%- for message in messages -%}<{{ message.role }}>{{ message.content }}"
    "{%- for call in message.tool_calls or [] -%}<call>{{ call.function.name }} {{ call.function.arguments | tojson }}</call>{%- endfor -%}"
    "<end>\n{%- endfor -%}{%- if add_generation_prompt %}<assistant>{% endif -%}"
)


# The tools of the benchmark alone have some thousand tokens.
MAX_TOKENS = 16_384


def make_tokenizer(path):
    """Learns a small vocabulary from the rows themselves."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=4_000, special_tokens=["<pad>", "<end>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train([str(path)], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>")
    fast.chat_template = TEMPLATE
    return fast


def make_model(tokenizer):
    torch.manual_seed(0)
    config = Qwen2Config(vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
                         num_key_value_heads=2, max_position_embeddings=MAX_TOKENS, pad_token_id=0, eos_token_id=1)
    return Qwen2ForCausalLM(config)


def train(name, trainer_class, config_class, folder, has_reference):
    rows = load_dataset("json", data_files=str(folder / f"{name}.jsonl"), split="train", cache_dir=str(folder / "cache"))
    tokenizer = make_tokenizer(folder / f"{name}.jsonl")
    settings = config_class(output_dir=str(folder / f"out-{name}"), max_steps=1, per_device_train_batch_size=2, use_cpu=True, bf16=False, report_to=[],
                            save_strategy="no", max_length=MAX_TOKENS)
    # The reference is the same model: the seed is fixed.
    reference = {"ref_model": make_model(tokenizer)} if has_reference else {}
    chosen = rows.select(range(min(len(rows), 8)))
    trainer = trainer_class(model=make_model(tokenizer), args=settings, train_dataset=chosen, processing_class=tokenizer, **reference)
    loss = trainer.train().training_loss
    print(f"{name}: {len(rows)} rows, loss {loss:.3f} after one step", flush=True)
    return loss == loss


def main():
    folder = pathlib.Path(sys.argv[1])
    done = [
        train("sft", SFTTrainer, SFTConfig, folder, has_reference=False),
        train("dpo", DPOTrainer, DPOConfig, folder, has_reference=True),
        train("kto", KTOTrainer, KTOConfig, folder, has_reference=True),
    ]
    sys.exit(0 if all(done) else 1)


if __name__ == "__main__":
    main()
