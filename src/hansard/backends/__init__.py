"""One module or package for each storage, imported only when its URL is opened."""
