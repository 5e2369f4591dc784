"""The production server *is* an M/D/1 or M/G/1 queue when it serves one request at a time with constant steps.

Two comparisons each: with Lindley's recursion on the very same arrivals (exact, to the nanosecond), and with the closed
form (within 3 standard errors from batch means: waiting times are correlated).
"""

import numpy as np
import pytest

BATCHES = 20


def lindley(arrival_ns, service_ns):
    """Waiting times of a single-server queue: W' = max(0, W + S - A)."""
    waits, wait = [], 0
    gaps = np.diff(arrival_ns, append=arrival_ns[-1]).tolist()
    for service, gap in zip(service_ns.tolist(), gaps, strict=True):
        waits.append(wait)
        wait = max(0, wait + service - gap)
    return np.array(waits)


def mean_and_error(samples):
    means = samples[: len(samples) // BATCHES * BATCHES].reshape(BATCHES, -1).mean(axis=1)
    return means.mean(), means.std(ddof=1) / np.sqrt(BATCHES)


@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_one_token_answers_are_an_m_d_1_queue(job, two_times, rho):
    step = 0.01
    queue = job(num_requests=40_000, prompt=8, output=1, alpha=0.0, k=0, cost=two_times(step, step))
    record = queue.run(queue.poisson(rho / step))
    waited = record.requests.first_scheduled_ns - record.requests.arrival_ns
    service = record.requests.finish_ns - record.requests.first_scheduled_ns
    assert np.array_equal(waited, lindley(record.requests.arrival_ns, service))
    assert set(service.tolist()) == {10_000_000}
    mean, error = mean_and_error(waited * 1e-9)
    assert abs(mean - rho * step / (2 * (1 - rho))) <= 3 * error


# docs/background/mathematics.md, "Queues": service = t0 + N tau, N the verify steps of an answer of L tokens.
POLLACZEK_KHINCHINE = [
    # alpha, K, L, E[N], Var[N], rho
    (0.8, 4, 128, 38.2446, 8.7204, 0.5),
    (0.7, 3, 64, 25.2939, 6.0453, 0.5),
    (0.7, 3, 64, 25.2939, 6.0453, 0.8),
]


@pytest.mark.parametrize(("alpha", "k", "length", "mean_steps", "var_steps", "rho"), POLLACZEK_KHINCHINE)
def test_speculative_answers_obey_pollaczek_khinchine(job, two_times, alpha, k, length, mean_steps, var_steps, rho):
    t0, tau = 0.020, 0.010
    queue = job(num_requests=8_000, prompt=8, output=length, alpha=alpha, k=k, cost=two_times(t0, tau))
    service = t0 + mean_steps * tau
    rate = rho / service
    record = queue.run(queue.poisson(rate))
    waited = record.requests.first_scheduled_ns - record.requests.arrival_ns
    served = record.requests.finish_ns - record.requests.first_scheduled_ns
    assert np.array_equal(waited, lindley(record.requests.arrival_ns, served))
    steps = (served * 1e-9 - t0) / tau
    assert abs(steps.mean() - mean_steps) <= 3 * np.sqrt(var_steps / len(steps))
    expected = rate * (service**2 + var_steps * tau**2) / (2 * (1 - rho))
    mean, error = mean_and_error(waited * 1e-9)
    assert abs(mean - expected) <= 3 * error


@pytest.mark.parametrize(("alpha", "k", "batch"), [(0.0, 0, 8), (0.7, 4, 1), (0.7, 4, 16), (0.8, 7, 64)])
def test_closed_loop_throughput_is_batch_times_tokens_per_step_over_step_time(
    job, two_times, per_pass, alpha, k, batch
):
    """Within 1 % for long answers; prefill and the end of each answer are the rest."""
    decode, per_token, draft = 0.010, 2e-5, 0.0005
    cost, drafter = two_times(decode, decode, per_token), per_pass(draft)
    each = max(6_000, 100_000 // batch)
    loop = job(
        num_requests=batch, prompt=1, output=each, alpha=alpha, k=k, cost=cost, drafter=drafter, max_num_seqs=batch
    )
    record = loop.run(users=batch)
    full = record.steps.num_emitting == batch
    seconds = record.steps.duration_ns[full].sum() * 1e-9
    throughput = record.steps.emitted_tokens[full].sum() / seconds
    tokens_per_step = sum(alpha**i for i in range(k + 1))
    step = decode + per_token * batch * (1 + k) + draft * k
    assert throughput == pytest.approx(batch * tokens_per_step / step, rel=0.01)


def test_one_request_alone_takes_what_the_arithmetic_says(job, two_times, per_pass):
    """TTFT and finish to the nanosecond."""
    alone = job(
        num_requests=1,
        prompt=100,
        output=10,
        alpha=1.0,
        k=2,
        cost=two_times(0.0301, 0.01, 1e-6),
        drafter=per_pass(1e-3),
    )
    record = alone.run(np.array([5]))
    prefill = 30_100_000 + 2_000_000
    step = 10_000_000 + 3 * 1_000 + 2_000_000
    assert record.requests.first_token_ns[0] == 5 + prefill
    assert record.requests.finish_ns[0] == 5 + prefill + 3 * step
    assert record.accepted.sum() == 6
    assert record.drafted.sum() == 6
