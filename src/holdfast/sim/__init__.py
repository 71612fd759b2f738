"""The simulator: the engine and the backends as they are shipped, on a virtual clock, a simulated
network and simulated machines, with every fault that we know of, and a checker of what happened.

    python -m holdfast.sim --backend redlock --seeds 1000
    python -m holdfast.sim --backend redlock --seed 17        the same run again, with its trace

Everything that happens in a run follows from its seed. See docs/simulator.md.
"""
