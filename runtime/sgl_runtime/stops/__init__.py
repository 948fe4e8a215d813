"""Stop regexes as automata that any process can follow an output with."""
