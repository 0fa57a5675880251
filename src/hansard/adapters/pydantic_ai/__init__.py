"""Pydantic AI's conversation store on the Store. Begin with `conversations`."""
