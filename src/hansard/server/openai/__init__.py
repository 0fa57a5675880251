"""The wire of OpenAI in front of a store: a client keeps its history here by changing one URL. See docs/openai.md."""
