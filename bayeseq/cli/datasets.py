"""bayeseq datasets: what can be loaded by name, from where, under which terms."""

from __future__ import annotations

import argparse

from bayeseq.data import list_datasets


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    infos = list_datasets()
    width = max(len(info.name) for info in infos)
    indent = " " * (width + 11)
    print(f"{'name':{width}}  at hand  description, terms, use")
    for info in infos:
        at_hand = "yes" if info.at_hand else "no"
        print(f"{info.name:{width}}  {at_hand:7}  {info.description}")
        print(f"{indent}terms: {info.terms}")
        if args.addresses:
            for address, sha256 in zip(info.addresses, info.sha256, strict=True):
                print(f"{indent}{address}\n{indent}  SHA-256 {sha256}")
    return 0
