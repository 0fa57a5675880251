"""The web page of the server: conversations to look at, search, understand and change. They are rendered here.

`site` is the way of a request, the other modules are the pages by what they show. What the pages read is read through
the same pipeline and the same views as the API: `hansard.server`.
"""
