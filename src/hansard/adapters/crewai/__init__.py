"""CrewAI's memory and flows on the Store."""
