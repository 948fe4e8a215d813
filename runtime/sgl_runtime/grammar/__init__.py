"""Which tokens may come next: front ends, automata, token masks and the compiler that ties them together."""
