"""The Claude Agent SDK's session store on the Store. Begin with `session_store`."""
