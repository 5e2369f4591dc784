"""Results of load tests against real servers, read strictly: `vllm bench serve`, AIPerf, GuideLLM."""
