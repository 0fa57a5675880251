"""Content as safe HTML: Markdown, and code with colours. Needs the packages of `hansard[server]`."""
