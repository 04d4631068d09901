"""pgqueuer_worker — one process of PgQueuer's own benchmark, so that several can drain one queue

Owns: calling PgQueuer's tools/benchmark.py: its set-up once (`fill`) and its drain in each process (`drain`). Like
    scripts/bench/core/worker.py it prints `ready`, waits for a line, and prints the number of jobs done.
Guarantees: set-up, consumers, driver, event loop and settings are PgQueuer's own. It runs on the Python of PgQueuer's
    scratch environment, with -P, and imports nothing of Pillarbox.
See: PgQueuer, tools/benchmark.py, DrainStrategy.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from time import monotonic
from typing import Any


async def _drain(strategy: Any) -> int:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await strategy.run()
    return int(strategy.tqdm_format_dict["n"])


def _loaded(path: str) -> Any:
    """The program as a module, without running its main part."""
    spec = importlib.util.spec_from_file_location("pgqueuer_benchmark", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path}: not a Python program")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """`BENCHMARK JOBS BATCH CONSUMERS fill|drain`."""
    path, jobs, batch, consumers, what = sys.argv[1:]
    benchmark = _loaded(path)
    loop = benchmark.uvloop
    apg, drain = benchmark.DriverEnum.apg, benchmark.StrategyEnum.drain
    settings = benchmark.DrainSettings(
        driver=apg,
        strategy=drain,
        jobs=int(jobs),
        dequeue=int(consumers),
        dequeue_batch_size=int(batch),
        output_json=None,
    )
    strategy = benchmark.DrainStrategy(settings)
    if what == "fill":
        loop.run(strategy.setup())
        return
    done = loop.run(_drain(strategy))
    print("\n" + json.dumps({"rows": done, "ended": monotonic()}), flush=True)


if __name__ == "__main__":
    main()
