"""How many threads numpy's linear algebra takes in a process that serves."""

import os

VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def use_one_thread() -> None:
    """Have the libraries beneath numpy and scipy use one thread, unless the environment says how many.

    To be called before numpy is imported. A server's matrices are small. Where the cores are shared with other
    work, several threads wait for each other in every product, many times as long as the product itself takes.
    """
    for variable in VARIABLES:
        os.environ.setdefault(variable, "1")
