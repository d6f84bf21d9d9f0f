"""OpenAI's client with a local server: first ``edgedec serve demo``, then this program."""

import sys

from openai import OpenAI


def main(url: str = "http://127.0.0.1:8080") -> None:
    """Stream a completion, then ask for one in a single answer, with edgedec's own figures."""
    with OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        model = client.models.list().data[0].id
        for part in client.completions.create(
            model=model, prompt="def fibonacci(n):\n", max_tokens=48, temperature=0, stream=True
        ):
            print(part.choices[0].text, end="", flush=True)
        whole = client.completions.create(model=model, prompt="import ", max_tokens=32, seed=1)
        figures = whole.model_extra["edgedec"]
        print(f"\n\n{figures['accepted']} of {figures['drafted']} drafted tokens were accepted")


if __name__ == "__main__":
    main(*sys.argv[1:])
