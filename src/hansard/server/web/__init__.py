"""The web page of the server, on which conversations can be read, searched, explained and changed.

`app` handles the requests; the other modules are named after the pages that they render. Pages use the same pipeline
and the same views as the API.
"""
