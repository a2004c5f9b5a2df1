"""Serves one GGUF file over the OpenAI-compatible HTTP API of llama.cpp, on a port of the loopback (0: any free one).

  serve.py RUNTIME GGUF ALIAS CONTEXT THREADS PORT

Prints its address, and ends when its standard input is closed: also when whoever started it was killed.
"""
import sys

runtime, gguf, alias, context, threads, port = sys.argv[1:7]
sys.path.insert(0, runtime)
import xllamacpp  # noqa: E402

params = xllamacpp.CommonParams()
params.model.path = gguf
params.model_alias = {alias}
params.hostnames = ["127.0.0.1"]
params.port = int(port)
params.n_ctx = int(context)
# One slot: questions come one after another, and the prefix that they share stays in it.
params.n_parallel = 1
params.cache_prompt = True
params.cache_ram_mib = 0
params.cpuparams.n_threads = int(threads)
params.cpuparams_batch.n_threads = int(threads)
params.warmup = False
params.ui = False
params.endpoint_props = False
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
