"""Wrong uses of the commands and of the Python interface; ``wrong_uses_page.py`` runs each.

They run in a folder that holds ``CONTENTS``, need the extras serve and grammar and no network, and
print the same on every machine.
"""

CONTENTS = {
    "checkpoint/": "a model as it comes from a hub, without its weights",
    "downloads/": "a folder with a file `model.gguf`, whose download was cut short",
    "broken/": "a bundle whose manifest is cut short",
    "newer/": "a bundle of a later version",
    "cut/": "a bundle whose weights are cut short",
    "taken/": "a folder with someone's notes",
    "empty/": "a folder with nothing in it",
    "lora/": "a LoRA adapter, without its weights",
    "notes.txt": "a text",
    "chats.jsonl": "prompts for `--prompts` that are conversations",
    "twice.jsonl": "prompts with one id twice",
    "pirate.json": "a conversation with a message that has no role",
}

COMMANDS = {
    "edgedec": """
edgedec genrate "Hi"
edgedec "def f(x):"
edgedec Qwen/Qwen3-0.6B
edgedec downloads/model.gguf
""",
    "The model and the prompt": """
edgedec generate Once upon a time
edgedec generate demo Once upon a time
edgedec generate demo "Hi" --bundle demo
edgedec generate Qwen/Qwen3-0.6B
edgedec generate downloads "Hi"
edgedec generate checkpoint "Hi"
edgedec generate ./missing "Hi"
edgedec generate missing.gguf
edgedec generate notes.txt "Hi there"
edgedec generate broken "Hi"
edgedec generate newer "Hi"
edgedec generate cut "Hi"
edgedec generate ""
edgedec generate "- one"
edgedec chat demo --target demo
edgedec chat checkpoint
edgedec chat nosuch
edgedec chat empty
edgedec chat lora
edgedec chat cut/target
edgedec chat checkpoint/config.json
edgedec run demo "Hi" --json-mode --regex "a+"
""",
    "The server": """
edgedec serve ./missing
edgedec serve demo -p 99999
edgedec serve demo --parallel 0
edgedec serve demo --temp 0.7
edgedec serve demo -t 0.7
edgedec serve demo --host 0.0.0.0
edgedec serve demo --host nowhere.invalid --api-key-file notes.txt
edgedec serve demo --api-key-file missing.txt
""",
    "Options": """
edgedec generate "Hi" --temprature 1
edgedec generate "Hi" --max-tokens 5
edgedec generate "Hi" -t 0.7
edgedec generate "Hi" -s "Be brief."
edgedec generate "Hi" --memory 8
edgedec generate "Hi" -n 0
edgedec generate "Hi" --temperature -1
edgedec generate "Hi" --top-p 2
edgedec generate "Hi" --logit-bias hello
edgedec generate "Hi" --logit-bias 99999=1
edgedec generate "Hi" --stop ""
edgedec generate "Hi" --drafter magic
edgedec generate "Hi" --drafter head-tree
edgedec generate "Hi" --draft magic
edgedec generate "Hi" --draft lokup
edgedec generate "Hi" --draft missing.gguf
edgedec generate "Hi" --draft lookup --drafter model
edgedec generate "Hi" --draft-length many
edgedec generate demo --prompts chats.jsonl --ray
edgedec generate demo --prompts chats.jsonl --out out.jsonl --ray nowhere
edgedec generate "Hi" --runtime-option mlok=on
edgedec generate "Hi" --runtime-option mlock=maybe
edgedec generate "Hi" --accept magic
edgedec generate "Hi" --accept typical
edgedec generate "Hi" --max-context 1000000
edgedec generate "Hi" --draft-context 1
edgedec generate "Hi" --draft-context auto
edgedec generate "Hi" --kv-memory 1KB
edgedec generate "Hi" --memory 1MB
edgedec generate "Hi" --memory plenty
edgedec generate "Hi" --weight-memory 1KB
edgedec generate "Hi" --plan missing.json
edgedec generate "Hi" --logprobs 3
edgedec demo --count 0
""",
    "JSON and grammars": """
edgedec generate "Hi" --json-schema missing.json
edgedec generate "Hi" --json-schema notes.txt
edgedec generate "Hi" --regex "("
edgedec generate "Hi" --grammar notes.txt
edgedec generate "Hi" --json-mode --regex "a+"
""",
    "The library": """
edgedec run missing "Hi"
edgedec run missing.gguf "Hi"
edgedec run demo Why is the sky blue?
edgedec run checkpoint "Hi"
edgedec run lora "Hi"
edgedec run . "Hi"
edgedec run demo "Hi" --system "Be brief." --raw
edgedec run demo "Hi" --weights int8 --calibrated
edgedec run demo "Hi" --draft magic
edgedec run demo "Hi" --draft lokup
edgedec run ""
edgedec pull demo
edgedec pull taken
edgedec show Qwen3
edgedec rm Qwen3
edgedec rm
edgedec rm --all --unused
edgedec list please
edgedec config threads 4
""",
    "Prompts in files": """
edgedec generate "Hi" --prompts twice.jsonl
edgedec generate "Hi" --out results.jsonl
edgedec generate --prompts missing.jsonl
edgedec generate --prompts notes.txt
edgedec generate --prompts twice.jsonl
edgedec generate --prompts chats.jsonl --system "Be brief."
edgedec generate --messages notes.txt
edgedec generate --messages pirate.json
edgedec verify demo --prompts chats.jsonl
""",
    "Other commands": """
edgedec export Qwen/Qwen3-0.6B --out new
edgedec export missing --out new
edgedec export checkpoint --out new
edgedec export lora --out new
edgedec export checkpoint
edgedec export checkpoint --out new --format onnx,pdf
edgedec export checkpoint --out new --draft-vocab auto
edgedec export checkpoint --out new --exporter optimum --format gguf
edgedec export downloads/model.gguf --out new
edgedec export downloads/model.gguf --out new --exporter optimum
edgedec heads nosuchmodel
edgedec inspect notes.txt
edgedec inspect cut
edgedec inspect downloads/model.gguf
edgedec inspect downloads/model.gguf --for android
edgedec inspect demo --for toaster
edgedec card notes.txt
edgedec card downloads/model.gguf
edgedec card demo --certificate notes.txt
edgedec verify nothing
edgedec verify demo --matrix
edgedec verify demo --certificate DIR
edgedec bench demo --draft missing
edgedec plan demo --memory 1MB
edgedec plan demo --out taken
edgedec profile demo --threads 0
edgedec prepare nothing
edgedec simulate demo
edgedec devices --jsno
edgedec cache --clean
edgedec doctor please
edgedec doctor --bench-report
""",
}

PYTHON = """
Pipeline.open("missing")
Pipeline.open("Qwen/Qwen3-0.6B")
Pipeline.open("demo", n_threads=2)
Pipeline.open("demo", drafter="magic")
Pipeline.open("demo", draft_context="auto")
Pipeline.open("demo", conversations=0)
Pipeline.open("demo", memory="lots")
Pipeline.open("demo", temperature=0.8)
pipeline.restore("notes.txt")
pipeline.generate("")
pipeline.generate(b"Hi")
pipeline.generate([99999])
pipeline.generate("Hi", 10)
pipeline.generate("Hi", max_tokens=10)
pipeline.generate("Hi", memory="2GB")
pipeline.generate("Hi", messages=[{"role": "user", "content": "Hi"}])
pipeline.generate("Hi", max_new_tokens=0)
pipeline.generate("Hi", temperature=-1)
pipeline.generate("Hi", drafter="magic")
pipeline.generate("Hi", stop="")
pipeline.generate("Hi" * 9000)
pipeline.chat([])
pipeline.chat([{"role": "user"}])
closed.generate("Hi")
[next(stream) for stream in (pipeline.stream("Hi"), pipeline.stream("Hi"))]
GenerateOptions(logprobs=-1)
SamplingParams(top_k=0.5)
"""
