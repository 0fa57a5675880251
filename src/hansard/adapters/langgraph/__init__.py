"""LangGraph's checkpointer and long-term store on the Store."""
