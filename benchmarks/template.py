"""Speed of template expansion on the training part of CoNLL-2000, on one core.

Run `python benchmarks/template.py [repeats]`; the best of the repeats is printed.
"""

import sys
import time
import tracemalloc

from bayeseq.data.datasets import load_dataset


def main(repeats: int = 5) -> None:
    dataset = load_dataset("conll2000")
    corpus, template = dataset["train"], dataset.template
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        sentences = template.transform(corpus)
        seconds.append(time.perf_counter() - start)
    strings = [string for tokens in sentences for token in tokens for string in token]
    objects = len({id(string) for string in strings})
    best = min(seconds)
    print(f"{corpus}, {len(template.unigrams) + len(template.bigrams)} template lines")
    print(f"{best:.3f} s, best of {repeats}")
    print(f"{corpus.n_tokens / best:12,.0f} tokens/s")
    print(f"{len(strings) / best:12,.0f} features/s")
    print(
        f"{len(strings):12,} features, {objects:,} string objects, {len(set(strings)):,} distinct"
    )
    del sentences, strings
    tracemalloc.start()
    kept = template.transform(corpus)
    held, peak = tracemalloc.get_traced_memory()
    print(f"{held / 1e6:12,.0f} MB held by {len(kept):,} sentences, {peak / 1e6:,.0f} MB at peak")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
