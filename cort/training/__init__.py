"""Training that both models share: the loop, what it takes to resume it, and several processes that train as one."""
