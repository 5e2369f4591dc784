"""Waiting times of three classical queues: oracles that the production server must meet with simple costs."""

import math


def pollaczek_khinchine_wait(arrival_rate: float, mean_service: float, second_moment: float) -> float:
    """Mean wait in an M/G/1 queue, lambda E[S^2] / (2 (1 - rho)); inf when rho >= 1.

    Args:
        arrival_rate: lambda, 1/s.
        mean_service: E[S], s.
        second_moment: E[S^2], s^2.
    """
    utilisation = arrival_rate * mean_service
    return arrival_rate * second_moment / (2.0 * (1.0 - utilisation)) if utilisation < 1.0 else math.inf


def md1_wait(utilisation: float, service: float) -> float:
    """Mean wait in an M/D/1 queue, rho S / (2 (1 - rho)); inf when rho >= 1."""
    return utilisation * service / (2.0 * (1.0 - utilisation)) if utilisation < 1.0 else math.inf


def erlang_c(num_servers: int, utilisation: float) -> float:
    """P(an arrival must wait) in an M/M/c queue with utilisation rho = lambda E[S] / c < 1; 1 from rho = 1 on."""
    if utilisation >= 1.0:
        return 1.0
    offered, blocking = num_servers * utilisation, 1.0
    for servers in range(1, num_servers + 1):  # Erlang B recursion: stable for many servers
        blocking = offered * blocking / (servers + offered * blocking)
    return blocking / (1.0 - utilisation * (1.0 - blocking))


def mmc_wait(num_servers: int, utilisation: float, mean_service: float) -> float:
    """Mean wait in an M/M/c queue, C(c, rho) E[S] / (c (1 - rho)); inf when rho >= 1."""
    if utilisation >= 1.0:
        return math.inf
    return erlang_c(num_servers, utilisation) * mean_service / (num_servers * (1.0 - utilisation))
