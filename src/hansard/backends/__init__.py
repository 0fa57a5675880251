"""One module or package a storage; each is imported only when its URL is opened."""
