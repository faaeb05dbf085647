"""The demo's story: install the chart, declare models, ask, measure, break it, and see it come back."""

import json
import sys
import time
import urllib.request
from collections.abc import Callable
from typing import TypeVar

import openai
from installation import Installation, await_true
from kube import CACHE, CommandFailed, Kube, kubeconfig
from prometheus import scraping

NAMESPACE = "flexserv-demo"
CHAT = "HuggingFaceTB/SmolLM2-135M-Instruct"
EMBEDDING = "sentence-transformers/all-MiniLM-L6-v2"
ON_DEMAND = "flexserv/tiny-random-llama"
QUESTIONS = ("What is the capital of France?", "Name three primary colors.", "What do bees make?")

T = TypeVar("T")


def main() -> int:
    demo = Installation(Kube(kubeconfig(), NAMESPACE))
    measured: list[tuple[str, str]] = []

    def step(title: str, action: Callable[[], T]) -> T:
        print(f"\n--- {title}", flush=True)
        began = time.monotonic()
        result = action()
        seconds = time.monotonic() - began
        print(f"    {seconds:.1f} s", flush=True)
        measured.append((title, f"{seconds:.1f} s"))
        return result

    step("an empty namespace that enforces `restricted`, and a claim with the models", demo.prepare)
    step("helm install: backend and operator Ready", demo.install)
    step("kubectl apply -f hack/samples/models.yaml: two Pinned, one OnDemand", lambda: _declare(demo))
    print(demo.kube.kubectl("get", "fsm"))
    with demo.kube.forward("service/flexserv", "http") as url:
        step("three questions, streamed, through the Service", lambda: _chat(url))
        step("an embedding", lambda: _embed(url))
        step("the first request for the OnDemand model loads it", lambda: _complete(url))
        step("Prometheus scrapes /metrics", lambda: _scrape(url))
    step("kubectl delete pod: the Pinned models come back unasked", lambda: _break(demo))
    print(demo.kube.kubectl("get", "fsm"))
    print("Measured:")
    for title, value in measured:
        print(f"  {value:>8}  {title}")
    print(f"  {demo.operator_memory_bytes() / 2**20:>5.0f} MB  resident memory of the operator")
    print(_how_to_reach())
    return 0


def _declare(demo: Installation) -> None:
    demo.apply_sample("models.yaml")
    demo.await_phases({"smollm2": "Loaded", "minilm": "Loaded", "tiny-llama": "Standby"})


def _chat(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="unused", timeout=120) as client:
        for question in QUESTIONS:
            print(f"    Q: {question}\n    A: ", end="", flush=True)
            for chunk in client.chat.completions.create(
                model=CHAT,
                messages=[{"role": "user", "content": question}],
                max_tokens=48,
                temperature=0,
                stream=True,
            ):
                print((chunk.choices[0].delta.content or "").replace("\n", " "), end="", flush=True)
            print()


def _embed(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="unused", timeout=120) as client:
        vector = client.embeddings.create(model=EMBEDDING, input="Bees make honey.").data[0].embedding
    print(f"    {len(vector)} numbers, length {sum(x * x for x in vector) ** 0.5:.4f}")


def _complete(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="unused", timeout=120) as client:
        reply = client.completions.create(model=ON_DEMAND, prompt="hello", max_tokens=8)
    print(f"    {reply.usage.completion_tokens if reply.usage else 0} tokens of a random model")


def _scrape(url: str) -> None:
    with scraping({"flexserv": url.removeprefix("http://")}) as prometheus:
        found = await_true(
            lambda: prometheus.query("flexserv_model_loaded == 1"), 20, lambda: "no flexserv_model_loaded yet"
        )
        for labels in sorted(found):
            print(f"    flexserv_model_loaded 1  {json.loads(labels)['model']}")
        tokens = prometheus.query("sum(flexserv_generated_tokens_total)")
        print(f"    {sum(tokens.values()):.0f} tokens generated")


def _break(demo: Installation) -> None:
    old = demo.backend_pod()["metadata"]["name"]
    demo.kube.kubectl("delete", "pod", old, "--wait", "--timeout=90s")

    def back() -> bool:
        pod = demo.backend_pod()
        ready = (
            all(c["ready"] for c in pod["status"].get("containerStatuses", []))
            and pod["status"]["phase"] == "Running"
        )
        return pod["metadata"]["name"] != old and ready

    await_true(back, 120, lambda: "the backend is not Ready again")
    demo.await_phases({"smollm2": "Loaded", "minilm": "Loaded"})
    with (
        demo.kube.forward("service/flexserv", "http") as url,
        urllib.request.urlopen(f"{url}/v1/flexserv/models/loaded", timeout=10) as reply,
    ):
        names = [model["served_name"] for model in json.load(reply)["models"]]
    print(f"    resident in the new pod: {', '.join(sorted(names))}")


def _how_to_reach() -> str:
    return f"""
It is still running. To reach it:

  export PATH={CACHE}/bin:$PATH KUBECONFIG=$(hack/cluster kubeconfig)
  kubectl -n {NAMESPACE} get fsm
  kubectl -n {NAMESPACE} port-forward service/flexserv 8001:http &
  curl -s http://127.0.0.1:8001/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{{"model": "{CHAT}", "messages": [{{"role": "user", "content": "Hello!"}}]}}'

To end it: make down"""


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CommandFailed as failure:
        print(f"\nThe demo cannot go on: {failure}", file=sys.stderr)
        sys.exit(1)
