"""Pydantic AI's conversation store on the Store. Start with `conversations`."""
