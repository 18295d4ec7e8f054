"""The benchmarks: Perdure, its peers and the bare limits of the machine, measured in the same run."""
