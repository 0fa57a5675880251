"""OpenAI's API in front of a store: clients store their history by changing one URL. See docs/reference/openai.md."""
