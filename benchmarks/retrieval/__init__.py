"""How well search finds what was said: recall on public data that you bring, and on a judged set of our own."""
